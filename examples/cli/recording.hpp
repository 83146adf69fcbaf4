// Recorded tensors of a reference run, and how ours compare with them.
#pragma once

#include "base/host_tensor.hpp"
#include "store/safetensors.hpp"
#include "store/tensor_source.hpp"

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace flux2::cli {

// One file of recorded tensors; shapes come reversed, in ggml's order.
class Recording {
  public:
    explicit Recording(const std::filesystem::path& file);

    bool has(const std::string& name) const { return source_.find(name) != nullptr; }
    // Throws bad_file when it is missing.
    HostTensor get(const std::string& name) const;
    std::vector<int32_t> get_ints(const std::string& name) const;
    // As PyTorch has it, slowest first.
    std::vector<int64_t> shape(const std::string& name) const;

  private:
    const TensorInfo& info(const std::string& name) const;

    TensorSource source_;
};

// Largest relative error that passes, by what is compared.
struct Limits {
    double stage = 2e-4;  // a few blocks, from recorded inputs
    double text = 2e-4;   // features after 27 layers of the text encoder
    double run = 2e-4;    // several steps, each starting from the last one's result
};

// Collects comparisons: a line each on `out`, and the tensors for --dump.
class Report {
  public:
    explicit Report(std::ostream& out) : out_(out) {}

    // Compares with the recorded tensor of that name; the dump gets ours in the recorded shape.
    void compare(const std::string& stage, const std::string& name, const HostTensor& ours,
                 const Recording& recording, double limit);
    void note(const std::string& line);

    int n_compared() const { return n_compared_; }
    int n_failed() const { return n_failed_; }
    void dump(const std::filesystem::path& file) const;

  private:
    std::ostream& out_;
    int n_compared_ = 0;
    int n_failed_ = 0;
    std::vector<FloatTensor> computed_;
};

// ||a - b|| / ||b||; infinite when a has a value that is no number.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace flux2::cli
