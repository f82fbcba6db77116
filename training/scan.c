/* The selective scan and its gradient: see scan.py, which compiles this file.
 * delta, u, y: (steps, rows, width); a: (states, width); b, c: (steps, rows, states).
 * One row of the batch at a time: its states stay in the cache, and the backward pass computes
 * them again instead of keeping them. exp is vectorised by the compiler (libmvec). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void step(const float *delta, const float *u, const float *a, const float *b,
                 const float *old, float *restrict h, float *restrict decay, long states,
                 long width) {
    for (long n = 0; n < states; n++) {
        const float bn = b[n];
#pragma omp simd
        for (long d = 0; d < width; d++) {
            const long i = n * width + d;
            decay[i] = expf(delta[d] * a[i]);
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
    float *all = malloc((2 * steps + 3) * size * sizeof(float)); /* h_0 = 0, h_1, ... */
    float *decays = all + (steps + 1) * size, *gh = decays + steps * size;
    float *gdu = malloc(width * sizeof(float));
    for (long row = 0; row < rows; row++) {
        memset(all, 0, size * sizeof(float));
        memset(gh, 0, size * sizeof(float));
        for (long t = 0; t < steps; t++) {
            const long at = t * rows + row;
            step(delta + at * width, u + at * width, a, b + at * states, all + t * size,
                 all + (t + 1) * size, decays + t * size, states, width);
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
                const float *decay = decays + t * size + n * width;
                float *restrict ghn = gh + n * width, *restrict gan = ga + n * width;
                float sum_b = 0, sum_c = 0;
#pragma omp simd reduction(+ : sum_b, sum_c)
                for (long d = 0; d < width; d++) {
                    const float grad = ghn[d] + g[d] * cn;
                    sum_c += g[d] * h[d];
                    sum_b += grad * dt[d] * ut[d];
                    gdu[d] += grad * bn;
                    const float back = grad * decay[d], power = back * old[d];
                    gd[d] += power * an[d];
                    gan[d] += power * dt[d];
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
