// Convolutional networks computed by plain loops in double, as an independent reference for tests
// of our networks.
#pragma once

#include "base/host_tensor.hpp"
#include "formats/tensor_type.hpp"
#include "support/support.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace flux2::test {

// A picture, plane by plane.
struct Planes {
    int64_t w = 0, h = 0, channels = 0;
    std::vector<double> values;

    Planes(int64_t width, int64_t height, int64_t n_channels)
        : w(width),
          h(height),
          channels(n_channels),
          values(static_cast<size_t>(width * height * n_channels)) {}
    double& at(int64_t c, int64_t y, int64_t x) {
        return values[static_cast<size_t>((c * h + y) * w + x)];
    }
    double at(int64_t c, int64_t y, int64_t x) const {
        return values[static_cast<size_t>((c * h + y) * w + x)];
    }
};

// Random weights by name. All are small whole numbers times powers of two, so that F16 holds them
// exactly.
class PlainWeights {
  public:
    // Filter [out, in, size, size]; values such that results are about as large as inputs.
    void add_conv(const std::string& name, int64_t in, int64_t out, int64_t size, bool bias = true);
    void add_norm(const std::string& name, int64_t n);
    void add_vector(const std::string& name, int64_t n, float middle, float spread);

    struct Tensor {
        std::vector<int64_t> shape;  // in ggml order
        std::vector<float> values;
    };
    const Tensor& get(const std::string& name) const { return tensors_.at(name); }
    const Tensor* find(const std::string& name) const;

    // As tensors of a file; those that the function gives no name are left out.
    std::vector<TestTensor> under(const std::function<std::string(const std::string&)>& name,
                                  TensorType type = TensorType::f32) const;

  private:
    float draw();  // -1..1

    std::map<std::string, Tensor> tensors_;
    uint32_t state_ = 1;
};

// x is padded with zeros. With stride 2 the filter's centre falls on every second pixel.
Planes plain_conv(const PlainWeights& w, const std::string& name, const Planes& x, int stride = 1);
Planes plain_group_norm(const PlainWeights& w, const std::string& name, const Planes& x,
                        int n_groups, double eps);
// One head over all pixels: softmax(q k^T / sqrt(channels)) v
Planes plain_attention(const Planes& q, const Planes& k, const Planes& v);
Planes plain_upscale(const Planes& x);  // every pixel becomes 2x2
Planes plain_map(const Planes& x, const std::function<double(double)>& f);
Planes plain_sum(const Planes& a, const Planes& b);

// [2w, 2h, c] <-> [w, h, 4c]; channel c * 4 + row * 2 + column.
Planes plain_patchify(const Planes& x);
Planes plain_unpatchify(const Planes& x);

// Arbitrary values in -1..1 times `size`.
HostTensor some_picture(int64_t w, int64_t h, int64_t channels, float size);
Planes planes_of(const HostTensor& x);
// The largest difference; infinite when the shapes differ.
double largest_difference(const Planes& a, const HostTensor& b);

}  // namespace flux2::test
