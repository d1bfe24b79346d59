// Two token-wise operations and attention over a paged cache, for CPUs. Built by torch on request; never needed.
//
// Torch's own calls copy a request's keys out of the cache before they attend. Here every (row, KV head) pair reads
// them where they lie: scores, softmax in float32, mix. Sums are float32 whatever the type of the tensors.
//
// Letters: T rows, N requests, P pages a request, H query heads, Hkv KV heads, D head size, E hidden size.

#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

// x [T, E] / rms(x) * weight [E]
template <typename T>
void rms_norm_rows(const T* x, const T* weight, T* out, int64_t rows, int64_t size, float eps) {
  at::parallel_for(0, rows, 8, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T* in = x + r * size;
      float squares = 0;
      for (int64_t i = 0; i < size; ++i) squares += float(in[i]) * float(in[i]);
      const float scale = 1.0f / std::sqrt(squares / size + eps);
      for (int64_t i = 0; i < size; ++i) out[r * size + i] = T(float(in[i]) * scale * float(weight[i]));
    }
  });
}

// Turns the first `turning` heads of each row in place: pair (i, i + D/2) by the row's angle.
template <typename T>
void rotate_rows(T* heads, const T* cos, const T* sin, int64_t rows, int64_t row_size, int64_t turning, int64_t dim) {
  const int64_t half = dim / 2;
  at::parallel_for(0, rows, 8, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      for (int64_t h = 0; h < turning; ++h) {
        T* a = heads + r * row_size + h * dim;
        for (int64_t i = 0; i < half; ++i) {
          const float c = float(cos[r * half + i]), s = float(sin[r * half + i]);
          const float low = float(a[i]), high = float(a[i + half]);
          a[i] = T(low * c - high * s);
          a[i + half] = T(high * c + low * s);
        }
      }
    }
  });
}

struct Shape {
  int64_t rows, heads, kv_heads, dim, page_size, table_width, window;  // window 0: none
};

// One row and one KV head: its group of query heads looks at keys first..end-1 of its request.
// D: the head size if it is a common one, so that loops over it are unrolled; 0: whatever the shape says.
template <typename T, int D>
void attend_one(const T* q, const T* keys, const T* values, const int* pages, T* out, int64_t end, const Shape& s,
                std::vector<float>& room) {
  const int64_t group = s.heads / s.kv_heads, dim = D ? D : s.dim, step = s.kv_heads * dim;
  const int64_t begin = s.window ? std::max<int64_t>(0, end - s.window) : 0, length = end - begin;
  room.resize(group * (2 * dim + length) + dim);
  float *query = room.data(), *mixed = query + group * dim, *row = mixed + group * dim, *scores = row + dim;
  const float scale = 1.0f / std::sqrt(float(dim));
  for (int64_t i = 0; i < group * dim; ++i) query[i] = float(q[i]) * scale, mixed[i] = 0;
  for (int64_t k = begin; k < end; ++k) {
    const T* key = keys + (pages[k / s.page_size] * s.page_size + k % s.page_size) * step;
    for (int64_t i = 0; i < dim; ++i) row[i] = float(key[i]);
    for (int64_t g = 0; g < group; ++g) {
      float dot = 0;
      for (int64_t i = 0; i < dim; ++i) dot += query[g * dim + i] * row[i];
      scores[g * length + k - begin] = dot;
    }
  }
  for (int64_t g = 0; g < group; ++g) {
    float *own = scores + g * length, top = *std::max_element(own, own + length), sum = 0;
    for (int64_t k = 0; k < length; ++k) own[k] = std::exp(own[k] - top), sum += own[k];
    for (int64_t k = 0; k < length; ++k) own[k] /= sum;
  }
  for (int64_t k = begin; k < end; ++k) {
    const T* value = values + (pages[k / s.page_size] * s.page_size + k % s.page_size) * step;
    for (int64_t i = 0; i < dim; ++i) row[i] = float(value[i]);
    for (int64_t g = 0; g < group; ++g) {
      const float share = scores[g * length + k - begin];
      for (int64_t i = 0; i < dim; ++i) mixed[g * dim + i] += share * row[i];
    }
  }
  for (int64_t i = 0; i < group * dim; ++i) out[i] = T(mixed[i]);
}

}  // namespace

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
  auto out = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "rms_norm", [&] {
    rms_norm_rows(x.const_data_ptr<scalar_t>(), weight.const_data_ptr<scalar_t>(), out.mutable_data_ptr<scalar_t>(),
                  x.numel() / x.size(-1), x.size(-1), float(eps));
  });
  return out;
}

// heads [T, H+2Hkv, D], contiguous   cos, sin [T, 1, D/2]
void rotate_(torch::Tensor heads, const torch::Tensor& cos, const torch::Tensor& sin, int64_t turning) {
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, heads.scalar_type(), "rotate", [&] {
    rotate_rows(heads.mutable_data_ptr<scalar_t>(), cos.const_data_ptr<scalar_t>(), sin.const_data_ptr<scalar_t>(),
                heads.size(0), heads.size(1) * heads.size(2), turning, heads.size(2));
  });
}

// q [T, H, D], rows anywhere in memory   caches [slots, Hkv, D]   table int32 [N, P]
// owner int64 [T]: the request of each row   ends int64 [T]: how many of its keys the row may see   out [T, H, D]
void attend(const torch::Tensor& q, const torch::Tensor& k_cache, const torch::Tensor& v_cache,
            const torch::Tensor& table, const torch::Tensor& owner, const torch::Tensor& ends, torch::Tensor out,
            int64_t page_size, int64_t window) {
  TORCH_CHECK(q.stride(2) == 1 && q.stride(1) == q.size(2) && k_cache.is_contiguous() && v_cache.is_contiguous() &&
              out.is_contiguous() && table.is_contiguous() && owner.is_contiguous() && ends.is_contiguous());
  const Shape s{q.size(0), q.size(1), k_cache.size(1), q.size(2), page_size, table.size(1), window};
  const int64_t group = s.heads / s.kv_heads;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "attend", [&] {
    const scalar_t *queries = q.const_data_ptr<scalar_t>(), *keys = k_cache.const_data_ptr<scalar_t>(),
                   *values = v_cache.const_data_ptr<scalar_t>();
    scalar_t* result = out.mutable_data_ptr<scalar_t>();
    const int* pages = table.const_data_ptr<int>();
    const int64_t *owners = owner.const_data_ptr<int64_t>(), *limits = ends.const_data_ptr<int64_t>();
    const auto one = s.dim == 64 ? attend_one<scalar_t, 64> : s.dim == 128 ? attend_one<scalar_t, 128> : attend_one<scalar_t, 0>;
    at::parallel_for(0, s.rows * s.kv_heads, 1, [&](int64_t first, int64_t last) {
      std::vector<float> room;
      for (int64_t job = first; job < last; ++job) {
        const int64_t row = job / s.kv_heads, head = job % s.kv_heads;
        one(queries + row * q.stride(0) + head * group * s.dim, keys + head * s.dim, values + head * s.dim,
                   pages + owners[row] * s.table_width, result + (row * s.heads + head * group) * s.dim, limits[row],
                   s, room);
      }
    });
  });
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("rms_norm", &rms_norm, "x / rms(x) * weight");
  m.def("rotate_", &rotate_, "turn the first heads of each row by its angle, in place");
  m.def("attend", &attend, "attention of single rows over the paged cache");
}
