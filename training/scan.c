/* The selective scan and its gradient: see scan.py, which compiles this file.
 * delta, u, y: (steps, rows, width); a: (states, width); b, c: (steps, rows, states).
 * One row of the batch at a time: its states stay in the cache, and the backward pass computes
 * them again instead of keeping them, and the decays twice. */
#include <stdlib.h>
#include <string.h>

/* exp(x) of x <= 0, to 2e-7 of it: 2^n by the exponent's bits, 2^f by a polynomial. */
static inline float power(float x) {
    float y = x * 1.44269504f;
    y = y < -126.0f ? -126.0f : y;
    const int n = (int)(y - 0.5f);
    const float f = (y - (float)n) * 0.693147181f;
    float p = 1.0f / 120 + f * (1.0f / 720);
    p = 1.0f + f * (1.0f + f * (1.0f / 2 + f * (1.0f / 6 + f * (1.0f / 24 + f * p))));
    const union { int bits; float value; } scale = {(n + 127) << 23};
    return p * scale.value;
}

static void step(const float *delta, const float *u, const float *a, const float *b,
                 const float *old, float *restrict h, float *restrict decay, long states,
                 long width) {
    for (long n = 0; n < states; n++) {
        const float bn = b[n];
#pragma omp simd
        for (long d = 0; d < width; d++) {
            const long i = n * width + d;
            decay[i] = power(delta[d] * a[i]);
            h[i] = decay[i] * old[i] + delta[d] * u[d] * bn;
        }
    }
}

void forward(const float *delta, const float *u, const float *a, const float *b, const float *c,
             float *y, long steps, long rows, long states, long width) {
    const long size = states * width;
    float *h = calloc(3 * size, sizeof(float));
    float *decay = h + 2 * size;
    for (long row = 0; row < rows; row++) {
        memset(h, 0, 2 * size * sizeof(float));
        for (long t = 0; t < steps; t++) {
            const long at = t * rows + row;
            float *now = h + (t % 2) * size, *out = y + at * width;
            step(delta + at * width, u + at * width, a, b + at * states,
                 h + ((t + 1) % 2) * size, now, decay, states, width);
            memset(out, 0, width * sizeof(float));
            for (long n = 0; n < states; n++) {
                const float cn = c[at * states + n];
#pragma omp simd
                for (long d = 0; d < width; d++) out[d] += cn * now[n * width + d];
            }
        }
    }
    free(h);
}

void backward(const float *delta, const float *u, const float *a, const float *b, const float *c,
              const float *gy, float *gdelta, float *gu, float *ga, float *gb, float *gc,
              long steps, long rows, long states, long width) {
    const long size = states * width;
    float *all = malloc((steps + 3) * size * sizeof(float)); /* h_0 = 0, h_1, ... */
    float *decay = all + (steps + 1) * size, *gh = decay + size;
    float *gdu = malloc(width * sizeof(float));
    for (long row = 0; row < rows; row++) {
        memset(all, 0, size * sizeof(float));
        memset(gh, 0, size * sizeof(float));
        for (long t = 0; t < steps; t++) {
            const long at = t * rows + row;
            step(delta + at * width, u + at * width, a, b + at * states, all + t * size,
                 all + (t + 1) * size, decay, states, width);
        }
        for (long t = steps - 1; t >= 0; t--) {
            const long at = t * rows + row;
            const float *dt = delta + at * width, *ut = u + at * width, *g = gy + at * width;
            float *restrict gd = gdelta + at * width;
            memset(gd, 0, width * sizeof(float));
            memset(gdu, 0, width * sizeof(float));
            for (long n = 0; n < states; n++) {
                const float bn = b[at * states + n], cn = c[at * states + n];
                const float *h = all + (t + 1) * size + n * width;
                const float *old = all + t * size + n * width, *an = a + n * width;
                float *restrict ghn = gh + n * width, *restrict gan = ga + n * width;
                float sum_b = 0, sum_c = 0;
#pragma omp simd reduction(+ : sum_b, sum_c)
                for (long d = 0; d < width; d++) {
                    const float grad = ghn[d] + g[d] * cn;
                    sum_c += g[d] * h[d];
                    sum_b += grad * dt[d] * ut[d];
                    gdu[d] += grad * bn;
                    const float back = grad * power(dt[d] * an[d]), through = back * old[d];
                    gd[d] += through * an[d];
                    gan[d] += through * dt[d];
                    ghn[d] = back;
                }
                gb[at * states + n] = sum_b;
                gc[at * states + n] = sum_c;
            }
#pragma omp simd
            for (long d = 0; d < width; d++) {
                gd[d] += gdu[d] * ut[d];
                gu[at * width + d] = gdu[d] * dt[d];
            }
        }
    }
    free(all);
    free(gdu);
}

/* The causal convolution before it. u, y: (steps, rows, width); weight: (taps, width). */
void convolve(const float *u, const float *weight, const float *bias, float *y, long steps,
              long rows, long width, long taps) {
    for (long t = 0; t < steps; t++)
        for (long row = 0; row < rows; row++) {
            float *restrict out = y + (t * rows + row) * width;
            memcpy(out, bias, width * sizeof(float));
            for (long k = t + 1 < taps ? taps - 1 - t : 0; k < taps; k++) {
                const float *in = u + ((t + k - taps + 1) * rows + row) * width;
                const float *w = weight + k * width;
#pragma omp simd
                for (long d = 0; d < width; d++) out[d] += w[d] * in[d];
            }
        }
}

/* The gradients (all zero before) by u, weight and bias. */
void convolve_back(const float *u, const float *weight, const float *gy, float *gu, float *gweight,
                   float *gbias, long steps, long rows, long width, long taps) {
    for (long t = 0; t < steps; t++)
        for (long row = 0; row < rows; row++) {
            const float *g = gy + (t * rows + row) * width;
            for (long k = t + 1 < taps ? taps - 1 - t : 0; k < taps; k++) {
                const long at = ((t + k - taps + 1) * rows + row) * width;
                const float *in = u + at, *w = weight + k * width;
                float *restrict gin = gu + at, *restrict gw = gweight + k * width;
#pragma omp simd
                for (long d = 0; d < width; d++) {
                    gin[d] += w[d] * g[d];
                    gw[d] += in[d] * g[d];
                }
            }
#pragma omp simd
            for (long d = 0; d < width; d++) gbias[d] += g[d];
        }
}
