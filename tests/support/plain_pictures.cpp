#include "support/plain_pictures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flux2::test {

float PlainWeights::draw() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 24) - 128) / 128;
}

void PlainWeights::add_conv(const std::string& name, int64_t in, int64_t out, int64_t size,
                            bool bias) {
    const double fair = std::sqrt(3.0 / static_cast<double>(in * size * size));
    const auto scale = static_cast<float>(std::exp2(std::round(std::log2(fair))));
    Tensor& filter = tensors_[name + ".weight"];
    filter.shape = {size, size, in, out};
    filter.values.resize(static_cast<size_t>(size * size * in * out));
    for (float& value : filter.values) {
        value = draw() * scale;
    }
    if (bias) {
        add_vector(name + ".bias", out, 0, 0.25f);
    }
}

void PlainWeights::add_norm(const std::string& name, int64_t n) {
    add_vector(name + ".weight", n, 1, 0.25f);
    add_vector(name + ".bias", n, 0, 0.25f);
}

void PlainWeights::add_vector(const std::string& name, int64_t n, float middle, float spread) {
    Tensor& tensor = tensors_[name];
    tensor.shape = {n};
    tensor.values.resize(static_cast<size_t>(n));
    for (float& value : tensor.values) {
        value = middle + draw() * spread;
    }
}

const PlainWeights::Tensor* PlainWeights::find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<TestTensor> PlainWeights::under(
    const std::function<std::string(const std::string&)>& name, TensorType type) const {
    std::vector<TestTensor> tensors;
    for (const auto& [original, tensor] : tensors_) {
        const std::string given = name(original);
        if (given.empty()) {
            continue;
        }
        Bytes bytes(data_bytes(type, static_cast<int64_t>(tensor.values.size())));
        from_f32(type, tensor.values, static_cast<int64_t>(tensor.values.size()), bytes);
        tensors.push_back({given, tensor.shape, std::move(bytes), type});
    }
    return tensors;
}

namespace {

// Adds plane `from` of x, seen by one tap of a filter, times a weight.
void add_tap(const Planes& x, int64_t from, int64_t dx, int64_t dy, int stride, double weight,
             Planes& y, int64_t to) {
    for (int64_t row = 0; row < y.h; ++row) {
        const int64_t source = row * stride + dy;
        if (source < 0 || source >= x.h) {
            continue;
        }
        for (int64_t column = 0; column < y.w; ++column) {
            const int64_t at = column * stride + dx;
            if (at >= 0 && at < x.w) {
                y.at(to, row, column) += weight * x.at(from, source, at);
            }
        }
    }
}

}  // namespace

Planes plain_conv(const PlainWeights& w, const std::string& name, const Planes& x, int stride) {
    const PlainWeights::Tensor& filter = w.get(name + ".weight");
    const PlainWeights::Tensor* bias = w.find(name + ".bias");
    const int64_t size = filter.shape[0];
    Planes y(x.w / stride, x.h / stride, filter.shape[3]);
    size_t next = 0;
    for (int64_t out = 0; out < y.channels; ++out) {
        for (int64_t i = 0; bias != nullptr && i < y.w * y.h; ++i) {
            y.at(out, 0, i) = static_cast<double>(bias->values[static_cast<size_t>(out)]);
        }
        for (int64_t in = 0; in < x.channels; ++in) {
            for (int64_t tap = 0; tap < size * size; ++tap) {
                add_tap(x, in, tap % size - size / 2, tap / size - size / 2, stride,
                        static_cast<double>(filter.values[next++]), y, out);
            }
        }
    }
    return y;
}

Planes plain_group_norm(const PlainWeights& w, const std::string& name, const Planes& x,
                        int n_groups, double eps) {
    const auto& weight = w.get(name + ".weight").values;
    const auto& bias = w.get(name + ".bias").values;
    Planes y = x;
    const size_t plane = static_cast<size_t>(x.w * x.h);
    const size_t n = x.values.size() / static_cast<size_t>(n_groups);
    for (size_t first = 0; first < x.values.size(); first += n) {
        double mean = 0;
        for (size_t i = first; i < first + n; ++i) {
            mean += x.values[i] / static_cast<double>(n);
        }
        double variance = 0;
        for (size_t i = first; i < first + n; ++i) {
            variance += (x.values[i] - mean) * (x.values[i] - mean) / static_cast<double>(n);
        }
        for (size_t i = first; i < first + n; ++i) {
            y.values[i] = (x.values[i] - mean) / std::sqrt(variance + eps) *
                              static_cast<double>(weight[i / plane]) +
                          static_cast<double>(bias[i / plane]);
        }
    }
    return y;
}

Planes plain_attention(const Planes& q, const Planes& k, const Planes& v) {
    const int64_t n = q.w * q.h;
    Planes y(q.w, q.h, q.channels);
    for (int64_t i = 0; i < n; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) {
            double score = 0;
            for (int64_t c = 0; c < q.channels; ++c) {
                score += q.at(c, 0, i) * k.at(c, 0, j);
            }
            weights.push_back(std::exp(score / std::sqrt(static_cast<double>(q.channels))));
            sum += weights.back();
        }
        for (int64_t c = 0; c < q.channels; ++c) {
            for (int64_t j = 0; j < n; ++j) {
                y.at(c, 0, i) += weights[static_cast<size_t>(j)] / sum * v.at(c, 0, j);
            }
        }
    }
    return y;
}

Planes plain_upscale(const Planes& x) {
    Planes y(2 * x.w, 2 * x.h, x.channels);
    for (int64_t c = 0; c < y.channels; ++c) {
        for (int64_t row = 0; row < y.h; ++row) {
            for (int64_t column = 0; column < y.w; ++column) {
                y.at(c, row, column) = x.at(c, row / 2, column / 2);
            }
        }
    }
    return y;
}

Planes plain_map(const Planes& x, const std::function<double(double)>& f) {
    Planes y = x;
    std::transform(x.values.begin(), x.values.end(), y.values.begin(), f);
    return y;
}

Planes plain_sum(const Planes& a, const Planes& b) {
    Planes y = a;
    std::transform(a.values.begin(), a.values.end(), b.values.begin(), y.values.begin(),
                   std::plus<>());
    return y;
}

Planes plain_patchify(const Planes& x) {
    Planes y(x.w / 2, x.h / 2, 4 * x.channels);
    for (int64_t k = 0; k < y.channels; ++k) {
        for (int64_t row = 0; row < y.h; ++row) {
            for (int64_t column = 0; column < y.w; ++column) {
                y.at(k, row, column) = x.at(k / 4, 2 * row + k % 4 / 2, 2 * column + k % 2);
            }
        }
    }
    return y;
}

Planes plain_unpatchify(const Planes& x) {
    Planes y(2 * x.w, 2 * x.h, x.channels / 4);
    for (int64_t c = 0; c < y.channels; ++c) {
        for (int64_t row = 0; row < y.h; ++row) {
            for (int64_t column = 0; column < y.w; ++column) {
                y.at(c, row, column) = x.at(c * 4 + row % 2 * 2 + column % 2, row / 2, column / 2);
            }
        }
    }
    return y;
}

HostTensor some_picture(int64_t w, int64_t h, int64_t channels, float size) {
    HostTensor x({w, h, channels, 1});
    for (size_t i = 0; i < x.data.size(); ++i) {
        x.data[i] = size * std::sin(static_cast<float>(i * i % 1009));
    }
    return x;
}

Planes planes_of(const HostTensor& x) {
    Planes planes(x.ne[0], x.ne[1], x.ne[2]);
    planes.values.assign(x.data.begin(), x.data.end());
    return planes;
}

double largest_difference(const Planes& a, const HostTensor& b) {
    if (a.w != b.ne[0] || a.h != b.ne[1] || a.channels != b.ne[2]) {
        return std::numeric_limits<double>::infinity();
    }
    double largest = 0;
    for (size_t i = 0; i < b.data.size(); ++i) {
        largest = std::max(largest, std::abs(a.values[i] - static_cast<double>(b.data[i])));
    }
    return largest;
}

}  // namespace flux2::test
