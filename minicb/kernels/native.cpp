// What a step computes, for CPUs: a decoder layer before and after attention, attention, and the head. Plain C++ with
// OpenMP, compiled on request; nobody needs it. Called from native.py, which owns all memory.
//
// A decode step is a read of the weights. They lie in panels, WIDE outputs side by side for each input, so a product
// is one stream through memory, fetched ahead, and each number that arrives serves up to ROWS rows while its vector is
// in a register. What surrounds a product is done where its result still lies in the nearest cache.
// Sums are float32 whatever the type of weights, cache and activations.
//
// Letters: T rows, E hidden size, F size of the MLP, H query heads, G of them to a KV head, Hkv KV heads, D head size.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, VECS = 4;  // 24 of 32 registers hold sums
#elif defined(__AVX__)
constexpr int LANES = 8, VECS = 2;  // 12 of 16
#else
constexpr int LANES = 4, VECS = 4;
#endif
constexpr int ROWS = 6, WIDE = LANES * VECS;
constexpr int64_t AHEAD = 4096;  // bytes between what is multiplied and what is fetched
constexpr int64_t KEYS = 64;     // keys that attention looks at together

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef float Quad __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

// The upper half of a float32, rounded to nearest, ties to even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    bits = uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  operator float() const {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
};

// To and from memory, at any address.
template <typename V = Vec>
inline V get(const void* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}
template <typename V>
inline void put(float* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

// One input's WIDE weights. In bfloat16 a word holds the same lane of two vectors, so that nothing must be unpacked.
inline void load(const float* w, Vec* out) {
  for (int v = 0; v < VECS; ++v) out[v] = get(w + v * LANES);
}
inline void load(const bf16* w, Vec* out) {
  for (int v = 0; v < VECS; v += 2) {
    const Words pair = get<Words>(w + v * LANES);
    out[v] = (Vec)(pair << 16);
    out[v + 1] = (Vec)(pair & 0xffff0000u);
  }
}

// M rows of x times one panel: out[m] = sum over k of x[m, k] * w[k]. Everything that is summed stays in registers.
template <typename T, int M>
void tile(const float* x, int64_t stride, const T* w, int64_t size, float (*out)[WIDE]) {
  Vec sums[M][VECS] = {};
  for (int64_t k = 0; k < size; ++k, w += WIDE) {
    for (size_t line = 0; line < WIDE * sizeof(T); line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(w) + AHEAD + line);
    Vec weights[VECS];
    load(w, weights);
    for (int m = 0; m < M; ++m) {
      const Vec value = x[m * stride + k] - Vec{};
      for (int v = 0; v < VECS; ++v) sums[m][v] += value * weights[v];
    }
  }
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < VECS; ++v) put(out[m] + v * LANES, sums[m][v]);
}

// work(m) for a number of rows that the compiler knows: 1 to ROWS.
template <int M = ROWS, typename Work>
void for_rows(int64_t rows, Work work) {
  if constexpr (M > 1) {
    if (rows < M) return for_rows<M - 1>(rows, work);
  }
  work(std::integral_constant<int, M>());
}

template <typename T>
void tile(int64_t rows, const float* x, int64_t stride, const T* w, int64_t size, float (*out)[WIDE]) {
  for_rows(rows, [&](auto m) { tile<T, m>(x, stride, w, size, out); });
}

// Room for a thread's own numbers, kept from call to call; one user of each kind at a time.
enum Kind { NUMBERS, WEIGHTS };
template <Kind>
float* scratch(int64_t size) {
  thread_local std::vector<float> room;
  if (int64_t(room.size()) < size) room.resize(size);
  return room.data();
}

// A panel's weights, `size` inputs of them, as float32.
template <typename T>
const float* widened(const T* panel, int64_t size) {
  float* wide = scratch<WEIGHTS>(size * WIDE);
  for (int64_t k = 0; k < size; ++k) {
    Vec weights[VECS];
    load(panel + k * WIDE, weights);
    for (int v = 0; v < VECS; ++v) put(wide + k * WIDE + v * LANES, weights[v]);
  }
  return wide;
}

// x [rows, in] times a weight of `out` outputs; finish(row, column, n, a, b) gets n of them as soon as they are known.
// PAIRED: panels alternate between two weights; a and b are the same columns of both.
template <bool PAIRED, typename T, typename Finish>
void product(const float* x, int64_t rows, int64_t in, const T* panels, int64_t out, Finish finish) {
  const int64_t count = (out + WIDE - 1) / WIDE, passes = (rows + ROWS - 1) / ROWS, step = in * WIDE;
#pragma omp for schedule(static)
  for (int64_t p = 0; p < count; ++p) {
    const auto all_rows = [&](const auto* one, const auto* other) {
      float a[ROWS][WIDE], b[ROWS][WIDE];
      for (int64_t pass = 0; pass < passes; ++pass) {
        const int64_t first = pass * rows / passes, end = (pass + 1) * rows / passes;
        tile(end - first, x + first * in, in, one, in, a);
        if (PAIRED) tile(end - first, x + first * in, in, other, in, b);
        for (int64_t row = first; row < end; ++row)
          finish(row, p * WIDE, std::min<int64_t>(WIDE, out - p * WIDE), a[row - first], b[row - first]);
      }
    };
    const T* panel = panels + (PAIRED ? 2 : 1) * p * step;
    if (std::is_same_v<T, bf16> && passes > 2) {  // taken apart once instead of in every pass
      const float* wide = widened(panel, (PAIRED ? 2 : 1) * in);
      all_rows(wide, wide + step);
    } else {
      all_rows(panel, panel + step);
    }
  }
}

// e^x, between e^-87 and e^88: a power of two times a polynomial of what is left. Source: Cephes, expf.
inline Vec exponential(Vec x) {
  x = x > 88.0f ? Vec{} + 88.0f : x < -87.0f ? Vec{} - 87.0f : x;
  const Ints power = __builtin_convertvector(x * 1.44269504f + 127.5f, Ints);  // in the form a float32 stores it
  const Vec whole = __builtin_convertvector(power - 127, Vec), r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vec sum = r * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  return (sum * r * r + r + 1.0f) * (Vec)(power << 23);
}

inline float total(Vec v) {
  float sum = 0;
  for (int i = 0; i < LANES; ++i) sum += v[i];
  return sum;
}

// The totals of four vectors, side by side.
inline Quad totals(const Vec* v) {
  Quad sums;
  for (int j = 0; j < 4; ++j) {
    Quad quarters[LANES / 4];
    std::memcpy(quarters, v + j, sizeof(Vec));
    for (int i = 1; i < LANES / 4; ++i) quarters[0] += quarters[i];
    sums[j] = quarters[0][0] + quarters[0][1] + quarters[0][2] + quarters[0][3];
  }
  return sums;
}

// x / rms(x) * weight
template <typename T>
void rms_norm(const T* x, const float* weight, int64_t size, float eps, float* out) {
  float squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += float(x[i]) * float(x[i]);
  const float scale = 1.0f / std::sqrt(squares / size + eps);
  for (int64_t i = 0; i < size; ++i) out[i] = float(x[i]) * scale * weight[i];
}

struct Layer {
  int64_t hidden, inner, heads, kv_heads, dim;
  double eps;
  // Panels have the model's type; norms and biases are float32; what a model lacks is null.
  const float *attention_norm, *q_norm, *k_norm, *mlp_norm;
  const float *qkv_bias, *out_bias, *gate_bias, *up_bias, *down_bias;
  const void *qkv, *out, *gate_up, *down;
};

// x [T, E] -> heads [T, H+2Hkv, D]: norm, project, norm the heads if the model does, turn queries and keys
template <typename T>
void before(const Layer& l, const T* x, int64_t rows, const T* cos, const T* sin, T* heads, int threads) {
  const int64_t turning = l.heads + l.kv_heads, width = (turning + l.kv_heads) * l.dim, half = l.dim / 2;
  float *normed = scratch<NUMBERS>(rows * (l.hidden + width)), *row_heads = normed + rows * l.hidden;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for
    for (int64_t r = 0; r < rows; ++r)
      rms_norm(x + r * l.hidden, l.attention_norm, l.hidden, float(l.eps), normed + r * l.hidden);
    product<false>(normed, rows, l.hidden, static_cast<const T*>(l.qkv), width,
                   [&](int64_t r, int64_t column, int64_t n, const float* sums, const float*) {
                     float* to = row_heads + r * width + column;
                     for (int64_t i = 0; i < n; ++i) to[i] = sums[i] + (l.qkv_bias ? l.qkv_bias[column + i] : 0);
                   });
#pragma omp for
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < turning + l.kv_heads; ++h) {
        float* from = row_heads + r * width + h * l.dim;
        T* to = heads + r * width + h * l.dim;
        const float* norm = h < l.heads ? l.q_norm : h < turning ? l.k_norm : nullptr;
        if (norm) rms_norm(from, norm, l.dim, float(l.eps), from);
        if (h < turning) {
          for (int64_t i = 0; i < half; ++i) {  // the pair (i, i + D/2), by the row's angle
            const float c = cos[r * half + i], s = sin[r * half + i], low = from[i], high = from[i + half];
            to[i] = T(low * c - high * s);
            to[i + half] = T(high * c + low * s);
          }
        } else {
          for (int64_t i = 0; i < l.dim; ++i) to[i] = T(from[i]);
        }
      }
    }
  }
}

// x [T, E], mixed [T, H, D] -> out [T, E]: project, add, norm, MLP, add
template <typename T>
void after(const Layer& l, const T* x, const T* mixed, int64_t rows, T* out, int threads) {
  const int64_t width = l.heads * l.dim;
  float *attended = scratch<NUMBERS>(rows * (width + 2 * l.hidden + l.inner)), *sum = attended + rows * width;
  float *normed = sum + rows * l.hidden, *active = normed + rows * l.hidden;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for
    for (int64_t i = 0; i < rows * width; ++i) attended[i] = mixed[i];
    product<false>(attended, rows, width, static_cast<const T*>(l.out), l.hidden,
                   [&](int64_t r, int64_t column, int64_t n, const float* sums, const float*) {
                     const int64_t at = r * l.hidden + column;
                     for (int64_t i = 0; i < n; ++i)
                       sum[at + i] = float(x[at + i]) + sums[i] + (l.out_bias ? l.out_bias[column + i] : 0);
                   });
#pragma omp for
    for (int64_t r = 0; r < rows; ++r)
      rms_norm(sum + r * l.hidden, l.mlp_norm, l.hidden, float(l.eps), normed + r * l.hidden);
    product<true>(normed, rows, l.hidden, static_cast<const T*>(l.gate_up), l.inner,
                  [&](int64_t r, int64_t column, int64_t n, float* gate, float* up) {
                    if (l.gate_bias)
                      for (int64_t i = 0; i < n; ++i)
                        gate[i] += l.gate_bias[column + i], up[i] += l.up_bias[column + i];
                    for (int64_t i = 0; i < WIDE; i += LANES)  // SiLU: g / (1 + e^-g)
                      put(gate + i, get(gate + i) * get(up + i) / (1.0f + exponential(-get(gate + i))));
                    std::copy(gate, gate + n, active + r * l.inner + column);
                  });
    product<false>(active, rows, l.inner, static_cast<const T*>(l.down), l.hidden,
                   [&](int64_t r, int64_t column, int64_t n, const float* sums, const float*) {
                     const int64_t at = r * l.hidden + column;
                     for (int64_t i = 0; i < n; ++i)
                       out[at + i] = T(sum[at + i] + sums[i] + (l.down_bias ? l.down_bias[column + i] : 0));
                   });
  }
}

struct Cache {
  int64_t heads, kv_heads, dim, page_size, table_width, window, requests, row_stride;  // window 0: none
  const int32_t *q_start, *kv_len, *page_table;
  const int64_t* slots;
};

struct Block {
  int64_t request, first, rows;  // consecutive new tokens of one request
};

// M queries [M, length] against n keys [KEYS, length], four at a time: scores [M, KEYS]; those from n on mean nothing.
template <int M, int LENGTH>
void dots(const float* queries, const float* keys, int64_t n, int64_t length, float* scores) {
  const int64_t size = LENGTH ? LENGTH : length;
  for (int64_t k = 0; k < n; k += 4) {
    Vec sums[M][4] = {};
    for (int64_t i = 0; i < size; i += LANES)
      for (int j = 0; j < 4; ++j)
        for (int m = 0; m < M; ++m) sums[m][j] += get(queries + m * size + i) * get(keys + (k + j) * size + i);
    for (int m = 0; m < M; ++m) put(scores + m * KEYS + k, totals(sums[m]));
  }
}

// Keys and values of positions start..start+n-1 as float32, for some heads side by side in memory: keys in rows, values
// in panels, KEYS * length of each a head. Reads memory in order.
template <typename T, int SIZE>
void gather(const Cache& c, const int32_t* pages, int64_t start, int64_t n, int64_t heads, const T* keys,
            const T* values, int64_t length, float* key_rows, float* panels) {
  const int64_t dim = SIZE ? SIZE : c.dim, step = c.kv_heads * dim, ahead = KEYS * step;
  int64_t page = start / c.page_size, offset = start % c.page_size;
  for (int64_t k = 0; k < n; ++k, ++offset) {
    if (offset == c.page_size) ++page, offset = 0;
    const int64_t at = (pages[page] * c.page_size + offset) * step;
    for (int64_t h = 0; h < heads; ++h) {
      const T *key = keys + at + h * dim, *value = values + at + h * dim;
      float *key_row = key_rows + (h * KEYS + k) * length, *panel = panels + h * KEYS * length + k * WIDE;
      for (int64_t line = 0; line < dim; line += 64 / int64_t(sizeof(T))) {
        __builtin_prefetch(key + ahead + line);  // of use if the next keys are on the same page
        __builtin_prefetch(value + ahead + line);
      }
      for (int64_t i = 0; i < dim; ++i) key_row[i] = key[i];
      for (int64_t i = 0; i < dim; ++i) panel[i / WIDE * KEYS * WIDE + i % WIDE] = value[i];
    }
  }
}

// Scores of the visible keys from..to-1 become weights under the highest so far; all others become 0. Returns what
// the sums so far must be multiplied with.
inline float softmax(float* scores, int64_t from, int64_t to, float& top, float& sum) {
  const float hidden = -1e30f;
  std::fill(scores, scores + std::clamp<int64_t>(from, 0, KEYS), hidden);
  std::fill(scores + std::clamp<int64_t>(to, 0, KEYS), scores + KEYS, hidden);
  Vec high = Vec{} + top, shares = {};
  for (int64_t k = 0; k < KEYS; k += LANES) high = get(scores + k) > high ? get(scores + k) : high;
  float highest = top;
  for (int i = 0; i < LANES; ++i) highest = std::max(highest, high[i]);
  for (int64_t k = 0; k < KEYS; k += LANES) {
    const Vec score = get(scores + k), share = score < -1e29f ? Vec{} : exponential(score - highest);
    put(scores + k, share);
    shares += share;
  }
  const float shrink = std::exp(top - highest);
  sum = sum * shrink + total(shares);
  top = highest;
  return shrink;
}

// The queries of a block look at their request's keys, KEYS at a time, for the KV heads first_head..end_head-1; the M =
// rows * G queries of each look at the same ones. The softmax is corrected as larger scores turn up.
// Source: Milakov & Gimelshein 2018; FlashAttention (2022).
// SIZE: the head size, if it is one that the compiler should know; 0: any other.
template <typename T, int SIZE>
void attend_block(const Cache& c, const Block& block, int64_t first_head, int64_t end_head, const T* q, const T* keys,
                  const T* values, T* out) {
  constexpr int LENGTH = (SIZE + WIDE - 1) / WIDE * WIDE;  // in whole panels
  const int64_t group = c.heads / c.kv_heads, count = block.rows * group;
  const int64_t heads = end_head - first_head, all = count * heads;
  const int64_t dim = SIZE ? SIZE : c.dim, length = SIZE ? LENGTH : (dim + WIDE - 1) / WIDE * WIDE;
  const int32_t* pages = c.page_table + block.request * c.table_width;
  float *query = scratch<NUMBERS>(all * (2 * length + 2) + count * KEYS + 2 * heads * KEYS * length),
        *mixed = query + all * length, *sum = mixed + all * length, *top = sum + all, *scores = top + all,
        *key_rows = scores + count * KEYS, *panels = key_rows + heads * KEYS * length;
  std::fill(query, top, 0.0f);
  std::fill(top, scores, -1e20f);
  if (length > dim) std::fill(key_rows, panels, 0.0f);  // what was there times a query's zero need not be zero
  const float scale = 1.0f / std::sqrt(float(dim));
  const auto place = [&](int64_t m, int64_t row_stride) {  // of a query's first number, in q or in out
    const int64_t row = m % count / group, head = (first_head + m / count) * group + m % group;
    return (block.first + row) * row_stride + head * dim;
  };
  for (int64_t m = 0; m < all; ++m)
    for (int64_t i = 0; i < dim; ++i) query[m * length + i] = float(q[place(m, c.row_stride) + i]) * scale;
  // A row sees its own position and what stands before it, as far back as the window reaches.
  const int64_t first_end = block.first + c.kv_len[block.request] - c.q_start[block.request + 1] + 1;
  const int64_t last_end = first_end + block.rows - 1;
  const auto begin_of = [&](int64_t end) { return c.window ? std::max<int64_t>(0, end - c.window) : 0; };
  for (int64_t start = begin_of(first_end) / KEYS * KEYS; start < last_end; start += KEYS) {
    const int64_t n = std::min(KEYS, last_end - start);
    gather<T, SIZE>(c, pages, start, n, heads, keys + first_head * dim, values + first_head * dim, length, key_rows,
                    panels);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t base = head * count;
      for (int64_t m = 0; m < count; m += ROWS)
        for_rows(std::min<int64_t>(ROWS, count - m), [&](auto rows) {
          dots<rows, LENGTH>(query + (base + m) * length, key_rows + head * KEYS * length, n, length,
                             scores + m * KEYS);
        });
      for (int64_t m = 0; m < count; ++m) {
        const int64_t end = first_end + m / group;
        const float shrink =
            softmax(scores + m * KEYS, begin_of(end) - start, std::min(n, end - start), top[base + m], sum[base + m]);
        for (int64_t i = 0; i < length; ++i) mixed[(base + m) * length + i] *= shrink;
      }
      for (int64_t m = 0; m < count; m += ROWS) {
        const int64_t some = std::min<int64_t>(ROWS, count - m);
        for (int64_t i = 0; i < length; i += WIDE) {
          float part[ROWS][WIDE];
          tile(some, scores + m * KEYS, KEYS, panels + (head * length + i) * KEYS, n, part);
          for (int64_t j = 0; j < some; ++j)
            for (int64_t v = 0; v < WIDE; ++v) mixed[(base + m + j) * length + i + v] += part[j][v];
        }
      }
    }
  }
  for (int64_t m = 0; m < all; ++m)
    for (int64_t i = 0; i < dim; ++i) out[place(m, c.heads * dim) + i] = T(mixed[m * length + i] / sum[m]);
}

// Keeps k and v [T, Hkv, D] in their slots, then mixes for q [T, H, D] -> out [T, H, D]. All three lie in joint rows.
template <typename T>
void attend(const Cache& c, const T* q, const T* k, const T* v, T* keys, T* values, T* out, int threads) {
  const int64_t group = c.heads / c.kv_heads, rows = c.q_start[c.requests], step = c.kv_heads * c.dim;
  const int64_t block_rows = std::max<int64_t>(1, 4 * ROWS / group);
  std::vector<Block> blocks;
  for (int64_t n = 0; n < c.requests; ++n)
    for (int64_t first = c.q_start[n]; first < c.q_start[n + 1]; first += block_rows)
      blocks.push_back({n, first, std::min<int64_t>(block_rows, c.q_start[n + 1] - first)});
  // Memory is read in order if a block's heads go together; few blocks are cut by heads, so that no thread is idle.
  const int64_t parts = int64_t(blocks.size()) < 2 * threads ? c.kv_heads : 1;
  const auto one = c.dim == 64 ? attend_block<T, 64> : c.dim == 128 ? attend_block<T, 128> : attend_block<T, 0>;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for
    for (int64_t r = 0; r < rows; ++r) {
      std::copy(k + r * c.row_stride, k + r * c.row_stride + step, keys + c.slots[r] * step);
      std::copy(v + r * c.row_stride, v + r * c.row_stride + step, values + c.slots[r] * step);
    }
#pragma omp for schedule(dynamic)
    for (int64_t job = 0; job < int64_t(blocks.size()) * parts; ++job) {
      const int64_t part = job % parts;
      one(c, blocks[job / parts], part * c.kv_heads / parts, (part + 1) * c.kv_heads / parts, q, keys, values, out);
    }
  }
}

// hidden [T, E] -> logits float32 [T, V]
template <typename T>
void head(const T* x, int64_t rows, int64_t in, const T* panels, int64_t out, float* logits, int threads) {
  float* inputs = scratch<NUMBERS>(rows * in);
  std::copy(x, x + rows * in, inputs);
#pragma omp parallel num_threads(threads)
  product<false>(inputs, rows, in, panels, out,
                 [&](int64_t r, int64_t column, int64_t n, const float* sums, const float*) {
                   std::copy(sums, sums + n, logits + r * out + column);
                 });
}

}  // namespace

#define FUNCTIONS(T, NAME)                                                                                           \
  void before_##NAME(const Layer* l, const T* x, int64_t rows, const T* cos, const T* sin, T* heads, int threads) {  \
    before(*l, x, rows, cos, sin, heads, threads);                                                                   \
  }                                                                                                                  \
  void after_##NAME(const Layer* l, const T* x, const T* mixed, int64_t rows, T* out, int threads) {                 \
    after(*l, x, mixed, rows, out, threads);                                                                         \
  }                                                                                                                  \
  void attend_##NAME(const Cache* c, const T* q, const T* k, const T* v, T* keys, T* values, T* out, int threads) {  \
    attend(*c, q, k, v, keys, values, out, threads);                                                                 \
  }                                                                                                                  \
  void head_##NAME(const T* x, int64_t rows, int64_t in, const T* panels, int64_t out, float* logits, int threads) { \
    head(x, rows, in, panels, out, logits, threads);                                                                 \
  }

extern "C" {
FUNCTIONS(float, float32)
FUNCTIONS(bf16, bfloat16)
int lanes() { return LANES; }
int vecs() { return VECS; }
}
