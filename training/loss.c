/* Cross entropy over many classes, and its gradient in place: see loss.py, which compiles this file.
 * logits: (rows, classes) in bfloat16, of which the gradient of a row's nats is left; bias and
 * g_bias: (classes,), or null; nats: (rows,). Sums and exponentials are float32. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static float widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static uint16_t narrow(float x) { /* to the nearest, ties to even */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void cross_entropy(uint16_t *logits, const int64_t *targets, const float *bias, float *g_bias,
                   float *nats, long rows, long classes) {
    float *own = malloc(classes * sizeof(float));
    for (long row = 0; row < rows; row++) {
        uint16_t *x = logits + row * classes;
        float most = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
        for (long k = 0; k < classes; k++) {
            own[k] = widen(x[k]) + (bias ? bias[k] : 0);
            most = own[k] > most ? own[k] : most;
        }
        const float target = own[targets[row]];
#pragma omp simd reduction(+ : sum)
        for (long k = 0; k < classes; k++) {
            own[k] = expf(own[k] - most);
            sum += own[k];
        }
        nats[row] = logf(sum) + most - target;
        const float share = 1 / sum;
#pragma omp simd
        for (long k = 0; k < classes; k++) {
            own[k] *= share;
        }
        own[targets[row]] -= 1;
        if (g_bias) {
#pragma omp simd
            for (long k = 0; k < classes; k++) {
                g_bias[k] += own[k];
            }
        }
#pragma omp simd
        for (long k = 0; k < classes; k++) {
            x[k] = narrow(own[k]);
        }
    }
    free(own);
}
