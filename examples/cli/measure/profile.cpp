#include "measure/profile.hpp"

#include "base/text_stream.hpp"
#include "compute/graph_work.hpp"
#include "compute/plain/own_node.hpp"

#include <algorithm>
#include <iomanip>
#include <vector>

namespace flux2::cli {
namespace {

std::string shape_of(const ggml_tensor& t) {
    std::string text = ggml_type_name(t.type);
    for (int i = 0; i < ggml_n_dims(&t); ++i) {
        text += (i == 0 ? " " : "x") + std::to_string(t.ne[i]);
    }
    return text;
}

// "q8_0 3072x9216 * f32 3072x768" for two operands, else the result's shape.
std::string describe(const ggml_tensor& result) {
    if (result.op == GGML_OP_MUL_MAT || result.op == GGML_OP_CONV_2D) {
        return shape_of(*result.src[0]) + " * " + shape_of(*result.src[1]);
    }
    if (result.op == GGML_OP_FLASH_ATTN_EXT) {
        return shape_of(*result.src[0]) + " * " + shape_of(*result.src[1]);
    }
    return shape_of(result);
}

// The entries of a map, those with the most seconds first.
template <typename Map, typename Seconds>
auto by_time(const Map& map, const Seconds& seconds) {
    std::vector<const typename Map::value_type*> entries;
    for (const auto& entry : map) {
        entries.push_back(&entry);
    }
    std::sort(entries.begin(), entries.end(),
              [&](const auto* a, const auto* b) { return seconds(*a) > seconds(*b); });
    return entries;
}

}  // namespace

void Profile::Cost::add(const Cost& other) {
    count += other.count;
    seconds += other.seconds;
    flops += other.flops;
    bytes += other.bytes;
}

void Profile::add(const ggml_tensor& result, double seconds) {
    if (computes(result)) {
        kinds_[operation_name(&result)][describe(result)].add(
            {1, seconds, work_of({&result}).flops, bytes_touched(result)});
    }
}

std::string Profile::to_text() const {
    constexpr double kLeastShare = 0.01;
    std::map<std::string, Cost> kinds;
    Cost all;
    for (const auto& [kind, shapes] : kinds_) {
        for (const auto& [shape, cost] : shapes) {
            kinds[kind].add(cost);
            all.add(cost);
        }
    }
    TextStream out;
    out << std::fixed;
    const auto line = [&](const std::string& name, const Cost& cost) {
        out << "  " << std::left << std::setw(52) << name << std::right << std::setw(6)
            << cost.count << " x " << std::setprecision(4) << std::setw(9) << cost.seconds << " s "
            << std::setprecision(1) << std::setw(5) << 100 * cost.seconds / all.seconds << " %  "
            << std::setw(9);
        if (cost.flops > 0) {
            out << cost.flops / cost.seconds / 1e9 << " GFLOP/s\n";
        } else {
            out << cost.bytes / cost.seconds / 1e9 << " GB/s\n";
        }
    };
    for (const auto* kind : by_time(kinds, [](const auto& k) { return k.second.seconds; })) {
        line(kind->first, kind->second);
        const auto& shapes = kinds_.at(kind->first);
        for (const auto* shape : by_time(shapes, [](const auto& s) { return s.second.seconds; })) {
            if (shapes.size() > 1 && shape->second.seconds >= kLeastShare * all.seconds) {
                line("    " + shape->first, shape->second);
            }
        }
    }
    return out.str();
}

std::string to_text(const GraphPlacement& placement) {
    TextStream out;
    out << "  copies between device and CPU: " << placement.n_copies << ", "
        << placement.copied_bytes / 1000 << " kB; on the CPU:";
    for (const auto& [kind, n] : placement.on_cpu) {
        out << " " << kind << " x " << n;
    }
    out << (placement.on_cpu.empty() ? " nothing of " : " of ") << placement.n_operations
        << " operations\n";
    return out.str();
}

}  // namespace flux2::cli
