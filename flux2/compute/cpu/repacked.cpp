#include "compute/cpu/repacked.hpp"

#include "compute/cpu/amx_linear.hpp"

#include <algorithm>
#include <array>

namespace flux2::cpu {
namespace {

struct Layout {
    const char* name;
    bool (*suits)(const ggml_tensor* matrix);
    int64_t (*rows_together)();
    void (*repack)(std::span<const std::byte> rows, int64_t first_row, ggml_tensor* matrix);
    ggml_tensor* (*linear)(Graph& g, ggml_tensor* w, ggml_tensor* x);
};

// `extra` of a repacked matrix points to its layout. The first that suits is taken.
const std::array kLayouts = {
    Layout{"AMX tiles", suits_amx, amx_rows_together, repack_amx, linear_amx}};

// Null when it has none of them.
const Layout* layout_of(const ggml_tensor* matrix) {
    const auto found = std::find_if(kLayouts.begin(), kLayouts.end(),
                                    [&](const Layout& layout) { return &layout == matrix->extra; });
    return found == kLayouts.end() ? nullptr : &*found;
}

const Layout* find_suitable(const ggml_tensor* matrix) {
    const auto found = std::find_if(kLayouts.begin(), kLayouts.end(),
                                    [&](const Layout& layout) { return layout.suits(matrix); });
    return found == kLayouts.end() ? nullptr : &*found;
}

}  // namespace

bool suits_repacking(const ggml_tensor* matrix) {
    return find_suitable(matrix) != nullptr;
}

void mark_repacked(ggml_tensor* matrix) {
    matrix->extra = const_cast<Layout*>(find_suitable(matrix));  // only compared and read
}

bool is_repacked(const ggml_tensor* matrix) {
    return layout_of(matrix) != nullptr;
}

const char* layout_name(const ggml_tensor* matrix) {
    return layout_of(matrix)->name;
}

int64_t rows_together(const ggml_tensor* matrix) {
    return layout_of(matrix)->rows_together();
}

void repack(std::span<const std::byte> rows, int64_t first_row, ggml_tensor* matrix) {
    layout_of(matrix)->repack(rows, first_row, matrix);
}

ggml_tensor* linear_repacked(Graph& g, ggml_tensor* w, ggml_tensor* x) {
    return layout_of(w)->linear(g, w, x);
}

}  // namespace flux2::cpu
