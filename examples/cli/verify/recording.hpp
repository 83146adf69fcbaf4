// Recorded tensors of a reference run, and comparison with ours.
#pragma once

#include "base/host_tensor.hpp"
#include "formats/safetensors.hpp"
#include "formats/tensor_source.hpp"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <iosfwd>
#include <set>
#include <string>
#include <vector>

namespace flux2::cli {

// One file of recorded tensors; shapes are in ggml's order.
class Recording {
  public:
    explicit Recording(const std::filesystem::path& file);

    const std::filesystem::path& file() const { return source_.path(); }
    // The metadata as an object; each value in the file is JSON text. Throws bad_file.
    nlohmann::json settings() const;
    std::vector<std::string> names() const;
    bool has(const std::string& name) const { return source_.find(name) != nullptr; }
    // Throws bad_file when it is missing.
    HostTensor get(const std::string& name) const;
    // The same for integers; throws bad_file when a value is too large to be exact.
    std::vector<int32_t> get_ints(const std::string& name) const;
    // As PyTorch has it, slowest first.
    std::vector<int64_t> shape(const std::string& name) const;

  private:
    const TensorInfo& info(const std::string& name) const;

    TensorSource source_;
};

// The variant of the model that it names: base, kv or dev, else empty for the distilled one. Throws
// bad_file.
std::string recorded_variant(const Recording& recording);

// Collects comparisons: a line each on `out`, and the tensors for --dump.
class Report {
  public:
    explicit Report(std::ostream& out) : out_(out) {}

    // Compares with the recorded tensor of that name; the dump gets ours in the recorded shape. A
    // different number of values is a failure.
    void compare(const std::string& stage, const std::string& name, const HostTensor& ours,
                 const Recording& recording, double limit);
    // The same, dumped under the recording's own name, without the stage.
    void compare_as_named(const std::string& stage, const std::string& name, const HostTensor& ours,
                          const Recording& recording, double limit);
    // The same with values from elsewhere; they are not dumped.
    void compare_values(const std::string& stage, const std::string& name, const HostTensor& ours,
                        const HostTensor& other, double limit);
    // Compares two pictures in 0..1 of one size by their PSNR; least_db is what passes.
    void compare_pictures(const std::string& stage, const HostTensor& ours,
                          const HostTensor& recorded, double least_db);
    // A check whose answer is yes or no; `result` is shown beside it.
    void expect(const std::string& stage, const std::string& name, bool holds,
                const std::string& result);
    // A comparison that could not be made.
    void fail(const std::string& stage, const std::string& name, const std::string& reason);
    // Whether that tensor was compared, with whatever result.
    bool has(const std::string& stage, const std::string& name) const;
    void note(const std::string& line);
    void add_to_dump(const std::string& name, const std::vector<int64_t>& shape,
                     const HostTensor& values);

    int n_compared() const { return n_compared_; }
    int n_failed() const { return n_failed_; }
    void dump(const std::filesystem::path& file) const;

  private:
    void print(const std::string& stage, const std::string& name, const std::string& result,
               bool ok);

    std::ostream& out_;
    std::set<std::string> names_;  // of what was compared, "stage/name"
    int n_compared_ = 0;
    int n_failed_ = 0;
    std::vector<FloatTensor> computed_;
};

// ||a - b|| / ||b||; infinite when a contains a NaN.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

// Peak signal-to-noise ratio in dB of two pictures in 0..1 after rounding both to 8 bits, as they
// are saved; infinite when they are equal then, minus infinite when one contains a NaN.
double psnr_8_bit(const std::vector<float>& a, const std::vector<float>& b);

// Pixels in -1..1 as pictures are recorded: in 0..1, clamped.
HostTensor to_unit_range(HostTensor pixels);

}  // namespace flux2::cli
