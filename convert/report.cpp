#include "report.hpp"

#include "base/text_stream.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>

namespace flux2::convert {

std::string readable_bytes(uint64_t bytes) {
    const char* unit = "bytes";
    auto size = static_cast<double>(bytes);
    for (const char* larger : {"kB", "MB", "GB"}) {
        if (size < 1000) {
            break;
        }
        size /= 1000;
        unit = larger;
    }
    TextStream text;
    text << std::setprecision(3) << size << " " << unit;
    return text.str();
}

void print_table(std::ostream& out, const ConversionPlan& plan) {
    size_t name_width = 0;
    for (const PlannedTensor& tensor : plan.tensors) {
        name_width = std::max(name_width, tensor.target.name.size());
    }
    for (const PlannedTensor& tensor : plan.tensors) {
        const GgufTensor& target = tensor.target;
        out << std::left << std::setw(static_cast<int>(name_width)) << target.name << "  "
            << std::setw(18) << to_string(target.shape) << "  " << std::setw(8)
            << type_name(tensor.source->type()) << " -> " << std::setw(7) << type_name(target.type)
            << std::right << std::setw(13) << data_bytes(target.type, target.shape.elements());
        if (plan.adapters.changes(target.name)) {
            out << "  with LoRA";
        }
        if (tensor.error) {
            out << "  error " << std::setprecision(3) << *tensor.error;
        }
        out << "\n";
    }
    out << plan.tensors.size() << " tensors, " << readable_bytes(plan.output_bytes()) << " ("
        << plan.output_bytes() << " bytes) for " << plan.output.string() << "\n";
}

bool print_errors(std::ostream& out, const std::vector<TypeError>& errors) {
    bool good = true;
    for (const TypeError& error : errors) {
        out << "  verify " << std::left << std::setw(7) << type_name(error.type) << std::right
            << std::setw(4) << error.n_tensors << " tensors, relative error " << std::scientific
            << std::setprecision(2) << error.relative_error << ", worst " << error.worst_error
            << std::defaultfloat << " (" << error.worst_tensor << ")"
            << (error.within_limit ? "" : "  FAIL") << "\n";
        good = good && error.within_limit;
    }
    return good;
}

void print_errors(std::ostream& out, const Extracted& extracted) {
    const auto print = [&](const KindError& error) {
        out << "  " << std::left << std::setw(42) << error.kind << std::right << std::setw(4)
            << error.n_modules << " modules, relative error " << std::scientific
            << std::setprecision(2) << error.relative_error << std::defaultfloat << "\n";
    };
    std::for_each(extracted.kinds.begin(), extracted.kinds.end(), print);
    print(extracted.all);
}

}  // namespace flux2::convert
