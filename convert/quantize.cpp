#include "quantize.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"
#include "formats/tensor_source.hpp"
#include "merge.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

namespace flux2::convert {
namespace {

constexpr int64_t kChunkElements = 1 << 20;  // 4 MB as F32

// Consecutive elements of one tensor that a thread converts in one go.
struct Chunk {
    size_t tensor;
    int64_t first;
    int64_t n;
};

// Rows matter to block types only; other tensors are one long row.
int64_t row_elements(const PlannedTensor& tensor) {
    const bool blocks = is_quantized(tensor.target.type) || is_quantized(tensor.source->type());
    return blocks ? tensor.target.shape.ne[0] : 1;
}

void cut_into_chunks(const std::vector<PlannedTensor>& tensors, size_t i,
                     std::vector<Chunk>& chunks) {
    const int64_t n = tensors[i].target.shape.elements();
    const int64_t row = row_elements(tensors[i]);
    const int64_t step = std::max<int64_t>(kChunkElements / row, 1) * row;
    for (int64_t first = 0; first < n; first += step) {
        chunks.push_back({i, first, std::min(step, n - first)});
    }
}

uint64_t chunk_source_bytes(const PlannedTensor& tensor, const Chunk& chunk) {
    return data_bytes(tensor.source->type(), chunk.n);
}

// The largest value that a type can always represent. Block scales are F16 and have its range; Q8_0
// multiplies them by up to 127, and MXFP4's scales are powers of two up to 2^127.
float largest_value(TensorType type) {
    constexpr float kF16 = 65504.0f;
    if (type == TensorType::q8_0) {
        return 127.0f * kF16;
    }
    const bool bounded = type == TensorType::f16 || is_quantized(type);
    return bounded && type != TensorType::mxfp4 ? kF16 : std::numeric_limits<float>::max();
}

// Buffers of one converting thread.
struct Scratch {
    std::vector<float> values;
    std::vector<float> read_back;
    std::vector<std::byte> encoded;
};

void read_chunk(const PlannedTensor& tensor, const Chunk& chunk, Scratch& scratch,
                const std::string& file) {
    scratch.values.resize(static_cast<size_t>(chunk.n));
    tensor.source->read_f32(chunk.first, scratch.values);
    check_range(tensor, scratch.values, file, chunk.first);
}

void copy_chunk(GgufWriter& writer, const PlannedTensor& tensor, const Chunk& chunk) {
    uint64_t offset = data_bytes(tensor.target.type, chunk.first);
    for (const Piece& piece : tensor.source->slice(chunk.first, chunk.n)) {
        writer.write(chunk.tensor, offset, piece.bytes);
        offset += piece.bytes.size();
    }
}

void convert_chunk(GgufWriter& writer, const PlannedTensor& tensor, const Chunk& chunk,
                   Scratch& scratch) {
    const TensorType type = tensor.target.type;
    scratch.encoded.resize(data_bytes(type, chunk.n));
    const int64_t row = is_quantized(type) ? tensor.target.shape.ne[0] : chunk.n;
    from_f32(type, scratch.values, row, scratch.encoded);
    writer.write(chunk.tensor, data_bytes(type, chunk.first), scratch.encoded);
}

// Sums of squares of one tensor: of the source, and of the difference.
struct Sums {
    double source = 0;
    double difference = 0;

    double relative() const {
        return source > 0 ? std::sqrt(difference / source) : std::sqrt(difference);
    }
};

Sums compare_chunk(const PlannedTensor& tensor, const TensorInfo& written, const Chunk& chunk,
                   Scratch& scratch) {
    scratch.values.resize(static_cast<size_t>(chunk.n));
    scratch.read_back.resize(static_cast<size_t>(chunk.n));
    tensor.source->read_f32(chunk.first, scratch.values);
    const TensorType type = tensor.target.type;
    to_f32(type, written.bytes.subspan(data_bytes(type, chunk.first), data_bytes(type, chunk.n)),
           scratch.read_back);
    Sums sums;
    for (size_t i = 0; i < scratch.values.size(); ++i) {
        const double value = static_cast<double>(scratch.values[i]);
        const double difference = static_cast<double>(scratch.read_back[i]) - value;
        sums.source += value * value;
        sums.difference += difference * difference;
    }
    return sums;
}

using ChunkWork = std::function<void(const PlannedTensor&, const Chunk&, Scratch&)>;

// Runs work over all chunks and reports the source bytes that are done. Tensors that adapters
// change come last, one after another, since each is in memory as a whole.
void for_each_chunk(const std::vector<PlannedTensor>& tensors, const WorkOptions& options,
                    const ChunkWork& work) {
    std::vector<Scratch> scratch(static_cast<size_t>(options.n_threads));
    std::atomic<uint64_t> done = 0;
    const auto check_cancel = [&] {
        check(!*options.cancel, ErrorKind::cancelled, "cancelled; no half-written file is left");
    };
    const auto run = [&](const std::vector<Chunk>& chunks, const PlannedTensor* merged) {
        parallel_for(chunks.size(), options.n_threads, [&](size_t i, size_t thread) {
            check_cancel();
            const PlannedTensor& tensor = tensors[chunks[i].tensor];
            work(merged != nullptr ? *merged : tensor, chunks[i], scratch[thread]);
            done += chunk_source_bytes(tensor, chunks[i]);
            if (thread == 0) {
                options.progress(done);
            }
        });
    };
    const auto is_changed = [&](const PlannedTensor& tensor) {
        return options.adapters != nullptr && options.adapters->changes(tensor.target.name);
    };
    std::vector<Chunk> unchanged;
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (!is_changed(tensors[i])) {
            cut_into_chunks(tensors, i, unchanged);
        }
    }
    run(unchanged, nullptr);
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (is_changed(tensors[i])) {
            check_cancel();
            const MergedTensor merged(*tensors[i].source, *options.adapters);
            PlannedTensor planned = tensors[i];
            planned.source = &merged.tensor();
            std::vector<Chunk> chunks;
            cut_into_chunks(tensors, i, chunks);
            run(chunks, &planned);
        }
    }
    check_cancel();
}

}  // namespace

void check_range(const PlannedTensor& tensor, std::span<const float> values,
                 const std::string& file, std::optional<int64_t> first) {
    const auto place = [&](size_t i) {
        return first ? concat(" as value ", *first + static_cast<int64_t>(i)) : std::string();
    };
    if (const size_t i = find_not_finite(values); i < values.size()) {
        fail(ErrorKind::bad_file, file, ": tensor ", tensor.target.name, " holds ", values[i],
             place(i),
             ", where a finite number is expected; the file is broken, download it again");
    }
    const float limit = largest_value(tensor.target.type);
    const auto beyond = std::find_if(values.begin(), values.end(),
                                     [&](float value) { return std::abs(value) > limit; });
    if (beyond != values.end()) {
        fail(ErrorKind::bad_file, file, ": tensor ", tensor.target.name, " holds ", *beyond,
             place(static_cast<size_t>(beyond - values.begin())), ", which ",
             type_name(tensor.target.type), " cannot; keep it in 32 bits with --tensor-type '",
             tensor.target.name, "=F32'");
    }
}

uint64_t source_bytes(const std::vector<PlannedTensor>& tensors) {
    uint64_t bytes = 0;
    for (const PlannedTensor& tensor : tensors) {
        bytes += data_bytes(tensor.source->type(), tensor.source->shape.elements());
    }
    return bytes;
}

void write_tensors(GgufWriter& writer, const std::vector<PlannedTensor>& tensors,
                   const WorkOptions& options) {
    for_each_chunk(tensors, options,
                   [&](const PlannedTensor& tensor, const Chunk& chunk, Scratch& scratch) {
                       read_chunk(tensor, chunk, scratch, options.source_file);
                       if (tensor.source->same_type_throughout() &&
                           tensor.source->type() == tensor.target.type) {
                           copy_chunk(writer, tensor, chunk);
                       } else {
                           convert_chunk(writer, tensor, chunk, scratch);
                       }
                   });
}

std::vector<TypeError> verify_tensors(const std::filesystem::path& file,
                                      const std::vector<PlannedTensor>& tensors,
                                      const WorkOptions& options) {
    const TensorSource written = TensorSource::open(file);
    std::vector<const TensorInfo*> read_back;
    for (const PlannedTensor& tensor : tensors) {
        const TensorInfo* found = written.find(tensor.target.name);
        check(found != nullptr && found->type == tensor.target.type &&
                  found->shape == tensor.target.shape,
              ErrorKind::internal, file.string(), ": tensor ", tensor.target.name,
              " did not come back as it was written");
        read_back.push_back(found);
    }
    std::vector<Sums> sums(tensors.size());
    std::mutex mutex;
    for_each_chunk(
        tensors, options, [&](const PlannedTensor& tensor, const Chunk& chunk, Scratch& scratch) {
            const Sums of_chunk = compare_chunk(tensor, *read_back[chunk.tensor], chunk, scratch);
            const std::lock_guard lock(mutex);
            sums[chunk.tensor].source += of_chunk.source;
            sums[chunk.tensor].difference += of_chunk.difference;
        });

    std::map<std::string, TypeError> errors;
    std::map<std::string, Sums> totals;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const TensorType type = tensors[i].target.type;
        TypeError& error = errors[type_name(type)];
        Sums& total = totals[type_name(type)];
        const double relative = sums[i].relative();
        error.type = type;
        ++error.n_tensors;
        total.source += sums[i].source;
        total.difference += sums[i].difference;
        // The error is NaN where values are NaN or infinite; it counts as the worst from then on.
        if (error.worst_tensor.empty() ||
            (!(relative <= error.worst_error) && !std::isnan(error.worst_error))) {
            error.worst_error = relative;
            error.worst_tensor = tensors[i].target.name;
        }
    }
    std::vector<TypeError> result;
    for (auto& [name, error] : errors) {
        error.relative_error = totals[name].relative();
        error.within_limit = error.worst_error <= error_limit(error.type);
        result.push_back(error);
    }
    return result;
}

double error_limit(TensorType type) {
    // The worst case of one block: every value off by half a step d, one of them at the top of the
    // range. For n values of b bits that is sqrt(n) / 2^b, doubled for scales that are rounded too.
    switch (type) {
        case TensorType::f32:
            return 1e-7;
        case TensorType::f16:
            return 1e-3;
        case TensorType::bf16:
            return 4e-3;
        case TensorType::q8_0:
            return 0.045;
        case TensorType::q6_k:
            return 0.125;
        case TensorType::q5_k:
        case TensorType::q5_0:
        case TensorType::q5_1:
            return 0.36;
        case TensorType::q4_k:
        case TensorType::q4_0:
        case TensorType::q4_1:
        case TensorType::iq4_nl:
        case TensorType::iq4_xs:
        case TensorType::mxfp4:
            return 0.71;
        default:
            return 1.0;
    }
}

}  // namespace flux2::convert
