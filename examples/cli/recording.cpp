#include "recording.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <ostream>

namespace flux2::cli {

Recording::Recording(const std::filesystem::path& file) : source_(TensorSource::open(file)) {}

const TensorInfo& Recording::info(const std::string& name) const {
    const TensorInfo* tensor = source_.find(name);
    check(tensor != nullptr, ErrorKind::bad_file, source_.path().string(), ": tensor ", name,
          " is missing; it is not a recorded run");
    return *tensor;
}

HostTensor Recording::get(const std::string& name) const {
    const TensorInfo& tensor = info(name);
    HostTensor values(tensor.shape.ne);
    to_f32(tensor.type, tensor.bytes, values.data);
    return values;
}

std::vector<int32_t> Recording::get_ints(const std::string& name) const {
    const HostTensor values = get(name);
    return {values.data.begin(), values.data.end()};
}

std::vector<int64_t> Recording::shape(const std::string& name) const {
    const Shape& shape = info(name).shape;
    std::vector<int64_t> sizes(shape.ne.begin(), shape.ne.begin() + shape.n_dims);
    std::reverse(sizes.begin(), sizes.end());
    return sizes;
}

void Report::compare(const std::string& stage, const std::string& name, const HostTensor& ours,
                     const Recording& recording, double limit) {
    const HostTensor recorded = recording.get(name);
    check(ours.data.size() == recorded.data.size(), ErrorKind::bad_file, stage, "/", name, " has ",
          ours.data.size(), " values, ", recorded.data.size(), " were recorded");
    const double error = relative_error(ours.data, recorded.data);
    float largest = 0;
    for (size_t i = 0; i < ours.data.size(); ++i) {
        largest = std::max(largest, std::abs(ours.data[i] - recorded.data[i]));
    }
    const bool ok = error <= limit;
    ++n_compared_;
    n_failed_ += ok ? 0 : 1;
    out_ << std::left << std::setw(22) << stage << std::setw(24) << name << std::scientific
         << std::setprecision(2) << " rel " << error << "  max " << largest << "  limit " << limit
         << std::defaultfloat << (ok ? "  ok" : "  FAIL") << std::endl;
    computed_.push_back({stage + "/" + name, recording.shape(name), ours.data});
}

void Report::note(const std::string& line) {
    out_ << line << std::endl;
}

void Report::dump(const std::filesystem::path& file) const {
    write_safetensors(file, computed_);
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        difference += d * d;
        norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    if (!std::isfinite(difference)) {
        return std::numeric_limits<double>::infinity();
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace flux2::cli
