/* The paper's iteration (Eq. 5, nu = 1) on one image, float32, one core: the yardstick of the benchmark.
 *
 * Compiled for one image size: -DHEIGHT, -DWIDTH, -DCHANNELS. One sweep over the rows does a whole iteration: once the
 * edges that leave row i to the right and downwards are known, no one needs the old u of that row any more, so that it is
 * updated while it is in the nearest cache. Rows are [CHANNELS][STRIDE]: a loop over a row runs over contiguous floats.
 */
#include <math.h>
#include <string.h>

#define LANES 16 /* floats in the widest vector register */
#define STRIDE ((WIDTH + LANES - 1) / LANES * LANES)
#define ALIGNED __attribute__((aligned(4 * LANES)))

/* Room on one side of a row: for u to the right of it, for the flow to the left of it, so that a row starts aligned. */
typedef float plain_row[CHANNELS][STRIDE];
typedef float roomy_row[CHANNELS][STRIDE + LANES];

/* z += moved, moved = alpha (D u - kappa shrink(z)), for one row of edges; columns of `ahead` start at `shift`. */
static inline __attribute__((always_inline)) void advance_edges(
    float (*restrict z)[STRIDE], float (*restrict moved)[STRIDE + LANES],
    const float (*restrict ahead)[STRIDE + LANES], const float (*restrict here)[STRIDE + LANES],
    int shift, float kappa, float alpha) {
  float factor[STRIDE] ALIGNED;
  /* Apart from the loop below on purpose: roots and divisions then overlap with other work, which is faster. */
  for (int j = 0; j < STRIDE; j++) {
    float norm_squared = 0;
    for (int c = 0; c < CHANNELS; c++) norm_squared += z[c][j] * z[c][j];
    float shrink = 1.0f - 1.0f / sqrtf(norm_squared); /* minus infinity at zero, which the next line makes zero */
    factor[j] = kappa * (shrink > 0 ? shrink : 0.0f);
  }
  for (int c = 0; c < CHANNELS; c++)
    for (int j = 0; j < STRIDE; j++) {
      float step = alpha * (ahead[c][j + shift] - here[c][j] - factor[j] * z[c][j]);
      z[c][j] += step;
      moved[c][LANES + j] = step;
    }
}

/* Sizes of the arrays, so that the caller need not know how rows are padded. */
int row_floats(void) { return STRIDE; }
int roomy_row_floats(void) { return STRIDE + LANES; }

/* All arrays are aligned to 64 bytes and start at zero, except x. */
void iterate(roomy_row *restrict u, plain_row *restrict down, plain_row *restrict right,
             const plain_row *restrict x, float kappa, float alpha, int steps) {
  u = __builtin_assume_aligned(u, 4 * LANES);
  down = __builtin_assume_aligned(down, 4 * LANES);
  right = __builtin_assume_aligned(right, 4 * LANES);
  x = __builtin_assume_aligned(x, 4 * LANES);
  roomy_row vertical[2] ALIGNED, horizontal ALIGNED; /* what z moved by: above and below the row, and along it */
  memset(vertical, 0, sizeof vertical);
  memset(horizontal, 0, sizeof horizontal);
  for (int k = 0; k < steps; k++) {
    memset(vertical[1], 0, sizeof vertical[1]); /* nothing is above the first row */
    for (int i = 0; i < HEIGHT; i++) {
      float(*below)[STRIDE + LANES] = vertical[i & 1];
      float(*above)[STRIDE + LANES] = vertical[1 - (i & 1)];
      advance_edges(right[i], horizontal, u[i], u[i], 1, kappa, alpha);
      if (i < HEIGHT - 1)
        advance_edges(down[i], below, u[i + 1], u[i], 0, kappa, alpha);
      else
        memset(below, 0, sizeof vertical[0]);
      for (int c = 0; c < CHANNELS; c++) {
        for (int j = 0; j < STRIDE; j++)
          u[i][c][j] += kappa * (alpha * (x[i][c][j] - u[i][c][j]) +
                                 (below[c][LANES + j] - above[c][LANES + j] +
                                  horizontal[c][LANES + j] - horizontal[c][LANES + j - 1]));
        /* Repeating the last pixel makes the differences past the edge of the image zero, without a mask. */
        for (int j = WIDTH; j <= STRIDE; j++) u[i][c][j] = u[i][c][WIDTH - 1];
      }
    }
  }
}
