// Speed of our conversion of rows beside ggml's quantizer called directly, one core, interleaved,
// best of five. Called by `make bench`.
#include "formats/tensor_type.hpp"

#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

using namespace flux2;

namespace {

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main() {
    constexpr int64_t kRow = 3072;
    constexpr int64_t kRows = 128;
    std::vector<float> values(kRow * kRows);
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::generate(values.begin(), values.end(), [&] { return normal(generator); });

    std::printf("%-8s %12s %12s   ns per value\n", "type", "ours", "ggml");
    for (const TensorType type :
         {TensorType::q8_0, TensorType::q6_k, TensorType::q5_k, TensorType::q4_k, TensorType::q3_k,
          TensorType::q2_k, TensorType::q4_0, TensorType::iq4_nl, TensorType::mxfp4}) {
        std::vector<std::byte> out(data_bytes(type, kRow * kRows));
        double ours = 1e9;
        double direct = 1e9;
        for (int i = 0; i < 5; ++i) {
            ours = std::min(ours, seconds_of([&] { from_f32(type, values, kRow, out); }));
            direct = std::min(direct, seconds_of([&] {
                                  ggml_quantize_chunk(static_cast<ggml_type>(type), values.data(),
                                                      out.data(), 0, kRows, kRow, nullptr);
                              }));
        }
        const double per_value = 1e9 / static_cast<double>(values.size());
        std::printf("%-8s %12.2f %12.2f\n", type_name(type).c_str(), ours * per_value,
                    direct * per_value);
    }
    return 0;
}
