#include "adapters/adapter_kind.hpp"

#include "adapters/adapter_key.hpp"
#include "base/check.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace flux2 {
namespace {

using Kind = AdapterKind;
using Role = AdapterRole;

// Tensors that a kind needs, in the order in which kinds are tried.
struct KindRoles {
    Kind kind;
    std::vector<Role> roles;
};

const std::vector<KindRoles>& kind_roles() {
    static const std::vector<KindRoles> kinds = {
        {Kind::lora, {Role::down, Role::up}},
        {Kind::loha, {Role::hada_w1_a, Role::hada_w1_b, Role::hada_w2_a, Role::hada_w2_b}},
        {Kind::lokr,
         {Role::lokr_w1, Role::lokr_w1_a, Role::lokr_w1_b, Role::lokr_w2, Role::lokr_w2_a,
          Role::lokr_w2_b}},
        {Kind::glora, {Role::glora_a1, Role::glora_a2, Role::glora_b1, Role::glora_b2}},
        {Kind::oft, {Role::oft_blocks}},
        {Kind::oft_v2, {Role::oft_r}},
        {Kind::set_weight, {Role::set_weight}},
        {Kind::diff, {Role::diff}},
    };
    return kinds;
}

// Of a factor that is either whole or a product: the tensor that is missing, if any.
std::optional<Role> missing_factor(const AdapterTensors& tensors, Role whole, Role a, Role b) {
    if (tensors.contains(whole) || (tensors.contains(a) && tensors.contains(b))) {
        return std::nullopt;
    }
    return tensors.contains(a) ? b : tensors.contains(b) ? a : whole;
}

std::optional<Role> first_missing(const KindRoles& kind, const AdapterTensors& tensors) {
    if (kind.kind == Kind::lokr) {
        const auto missing =
            missing_factor(tensors, Role::lokr_w1, Role::lokr_w1_a, Role::lokr_w1_b);
        return missing ? missing
                       : missing_factor(tensors, Role::lokr_w2, Role::lokr_w2_a, Role::lokr_w2_b);
    }
    for (const Role role : kind.roles) {
        if (!tensors.contains(role)) {
            return role;
        }
    }
    return std::nullopt;
}

bool is_begun(const KindRoles& kind, const AdapterTensors& tensors) {
    return std::any_of(kind.roles.begin(), kind.roles.end(),
                       [&](Role role) { return tensors.contains(role); });
}

// A matrix [rows, cols] of the formulas.
struct Matrix {
    int64_t rows, cols;
};

// Reads shapes of one module and checks them.
class Shapes {
  public:
    Shapes(const AdapterModule& module, const std::string& file) : module_(module), file_(file) {}

    std::string where(Role role) const {
        return concat(file_, ": tensor ", module_.find(role)->name);
    }

    const Shape& shape(Role role) const {
        constexpr int64_t kMaxSize = int64_t{1} << 30;  // products of two stay in range
        const TensorInfo& tensor = *module_.find(role);
        const auto& ne = tensor.shape.ne;
        check(converts_to_f32(tensor.type), ErrorKind::bad_file, where(role), " is of type ",
              type_name(tensor.type), ", numbers are expected");
        check(*std::min_element(ne.begin(), ne.end()) > 0 &&
                  *std::max_element(ne.begin(), ne.end()) <= kMaxSize,
              ErrorKind::bad_file, where(role), " has the shape ", to_string(tensor.shape),
              ", which no model has; the file is broken");
        return tensor.shape;
    }

    Matrix matrix(Role role) const {
        const Shape& s = shape(role);
        check(s.ne[2] == 1 && s.ne[3] == 1, ErrorKind::bad_file, where(role), " has the shape ",
              to_string(s), ", a matrix is expected; it is not for a linear layer");
        return {s.ne[1], s.ne[0]};
    }

    // Checks that two sizes that the formula needs to be equal are.
    void check_equal(Role a, int64_t size_a, Role b, int64_t size_b, const char* what) const {
        check(size_a == size_b, ErrorKind::bad_file, where(a), " has ", what, " ", size_a, ", ",
              to_string(b), " has ", size_b,
              "; they do not belong together: the file is broken, download it again");
    }

    // The product of two matrices: its outer sizes.
    Matrix product(Role a, Role b) const {
        const Matrix left = matrix(a), right = matrix(b);
        check_equal(a, left.cols, b, right.rows, "rank");
        return {left.rows, right.cols};
    }

    // A factor of a LoKr: whole, or a product.
    Matrix factor(Role whole, Role a, Role b) const {
        return module_.has(whole) ? matrix(whole) : product(a, b);
    }

  private:
    const AdapterModule& module_;
    const std::string& file_;
};

void set_sizes(AdapterModule& module, Matrix sizes, int64_t rank) {
    module.n_out = sizes.rows;
    module.n_in = sizes.cols;
    module.rank = rank;
}

void measure_loha(AdapterModule& module, const Shapes& shapes) {
    const Matrix first = shapes.product(Role::hada_w1_a, Role::hada_w1_b);
    const Matrix second = shapes.product(Role::hada_w2_a, Role::hada_w2_b);
    shapes.check_equal(Role::hada_w1_a, first.rows, Role::hada_w2_a, second.rows, "outputs");
    shapes.check_equal(Role::hada_w1_b, first.cols, Role::hada_w2_b, second.cols, "inputs");
    set_sizes(module, first, shapes.matrix(Role::hada_w1_b).rows);
}

void measure_lokr(AdapterModule& module, const Shapes& shapes) {
    const Matrix w1 = shapes.factor(Role::lokr_w1, Role::lokr_w1_a, Role::lokr_w1_b);
    const Matrix w2 = shapes.factor(Role::lokr_w2, Role::lokr_w2_a, Role::lokr_w2_b);
    const int64_t rank = !module.has(Role::lokr_w2)   ? shapes.matrix(Role::lokr_w2_b).rows
                         : !module.has(Role::lokr_w1) ? shapes.matrix(Role::lokr_w1_b).rows
                                                      : 0;
    set_sizes(module, {w1.rows * w2.rows, w1.cols * w2.cols}, rank);
}

// Newer files: b1 [out, r], b2 [r, in], a1 [in, r], a2 [r, in]; older ones have b2 b1 and a2 a1.
void measure_glora(AdapterModule& module, const Shapes& shapes) {
    const Matrix a1 = shapes.matrix(Role::glora_a1);
    const bool older = a1.rows < a1.cols;
    const auto [b_left, b_right] = older ? std::pair{Role::glora_b2, Role::glora_b1}
                                         : std::pair{Role::glora_b1, Role::glora_b2};
    const auto [a_left, a_right] = older ? std::pair{Role::glora_a2, Role::glora_a1}
                                         : std::pair{Role::glora_a1, Role::glora_a2};
    const Matrix b = shapes.product(b_left, b_right);
    const Matrix a = shapes.product(a_left, a_right);
    shapes.check_equal(a_left, a.rows, b_right, b.cols, "inputs");
    shapes.check_equal(a_right, a.cols, b_right, b.cols, "inputs");
    shapes.check_equal(a_right, shapes.matrix(a_right).rows, b_right, shapes.matrix(b_right).rows,
                       "rank");
    set_sizes(module, b, shapes.matrix(b_right).rows);
}

void measure_oft(AdapterModule& module, const Shapes& shapes) {
    const Shape& blocks = shapes.shape(Role::oft_blocks);
    const int64_t size = blocks.ne[0], n_blocks = blocks.ne[2], n_stages = blocks.ne[3];
    check(size == blocks.ne[1], ErrorKind::bad_file, shapes.where(Role::oft_blocks),
          " has blocks of ", blocks.ne[1], " rows and ", size,
          " columns, square ones are expected; the file is broken");
    // Stage i mixes rows that are 2^i half blocks apart.
    const bool whole_stages = n_stages <= 30 && n_blocks % (int64_t{1} << (n_stages - 1)) == 0;
    check(module.kind == Kind::oft || (size % 2 == 0 && whole_stages), ErrorKind::bad_file,
          shapes.where(Role::oft_blocks), " has ", n_stages, " stages of ", n_blocks,
          " blocks of size ", size, ", which do not fit together; the file is broken");
    module.n_out = size * n_blocks;
    if (module.has(Role::rescale)) {
        shapes.check_equal(Role::rescale, shapes.shape(Role::rescale).elements(), Role::oft_blocks,
                           module.n_out, "outputs");
    }
}

void measure_oft_v2(AdapterModule& module, const Shapes& shapes) {
    const Matrix r = shapes.matrix(Role::oft_r);
    const auto size =
        static_cast<int64_t>(std::lround((1 + std::sqrt(1 + 8 * static_cast<double>(r.cols))) / 2));
    check(size * (size - 1) / 2 == r.cols, ErrorKind::bad_file, shapes.where(Role::oft_r), " has ",
          r.cols,
          " values per block, the upper triangle of a matrix is expected; the file is "
          "broken");
    module.n_in = r.rows * size;
}

void measure_whole(AdapterModule& module, const Shapes& shapes, Role role) {
    if (is_norm_tensor(module.tensor)) {
        const Shape& shape = shapes.shape(role);
        check(shape.elements() == *std::max_element(shape.ne.begin(), shape.ne.end()),
              ErrorKind::bad_file, shapes.where(role), " has the shape ", to_string(shape),
              ", a vector is expected for a norm");
        set_sizes(module, {shape.elements(), 1}, 0);
    } else {
        set_sizes(module, shapes.matrix(role), 0);
    }
}

// [out, 1] and [out] are one per row, [1, in] is one per column.
void check_magnitude(const AdapterModule& module, const Shapes& shapes) {
    const Shape& m = shapes.shape(Role::magnitude);
    const bool per_row = m.elements() == module.n_out && (m.n_dims <= 1 || m.ne[0] == 1);
    const bool per_column = m.elements() == module.n_in && m.ne[0] == module.n_in && m.n_dims > 1;
    check(per_row || per_column, ErrorKind::bad_file, shapes.where(Role::magnitude),
          " has the shape ", to_string(m), ", but the module has ", module.n_out, " outputs and ",
          module.n_in, " inputs; the file is broken");
}

}  // namespace

const char* to_string(AdapterKind kind) {
    switch (kind) {
        case Kind::lora:
            return "LoRA";
        case Kind::loha:
            return "LoHa";
        case Kind::lokr:
            return "LoKr";
        case Kind::glora:
            return "GLoRA";
        case Kind::diff:
            return "diff";
        case Kind::set_weight:
            return "set_weight";
        case Kind::oft:
            return "OFT";
        case Kind::boft:
            return "BOFT";
        case Kind::oft_v2:
            return "OFTv2";
    }
    fail(ErrorKind::internal, "unknown kind of adapter");
}

bool is_norm_tensor(const std::string& tensor) {
    return tensor.ends_with(".scale") || tensor.ends_with("_norm.weight");
}

KindChoice choose_kind(const AdapterTensors& tensors) {
    KindChoice choice;
    for (const KindRoles& kind : kind_roles()) {
        if (!is_begun(kind, tensors)) {
            continue;
        }
        const auto missing = first_missing(kind, tensors);
        if (!missing) {
            choice.kind = kind.kind;
            break;
        }
        if (choice.reason.empty()) {
            choice.reason = concat("its pair ", to_string(*missing), " is missing");
        }
    }
    if (choice.kind == Kind::oft && tensors.at(Role::oft_blocks)->shape.n_dims == 4) {
        choice.kind = Kind::boft;
    }
    if (!choice.kind && choice.reason.empty()) {
        choice.reason = "nothing else of its module is there";
    }
    return choice;
}

bool uses(AdapterKind kind, AdapterRole role) {
    const bool is_oft = kind == Kind::oft || kind == Kind::boft;
    const bool is_product =
        kind == Kind::lora || kind == Kind::loha || kind == Kind::lokr || kind == Kind::glora;
    switch (role) {
        case Role::alpha:
            return true;
        case Role::scale:
        case Role::magnitude:
            return is_product;
        case Role::rescale:
            return is_oft;
        case Role::scaled_oft:
            return kind == Kind::oft_v2;
        default:
            break;
    }
    const auto& kinds = kind_roles();
    const auto own = std::find_if(kinds.begin(), kinds.end(), [&](const KindRoles& roles) {
        return roles.kind == (kind == Kind::boft ? Kind::oft : kind);
    });
    return std::find(own->roles.begin(), own->roles.end(), role) != own->roles.end();
}

void measure(AdapterModule& module, const std::string& file) {
    const Shapes shapes(module, file);
    switch (module.kind) {
        case Kind::lora:
            set_sizes(module, shapes.product(Role::up, Role::down), shapes.matrix(Role::down).rows);
            break;
        case Kind::loha:
            measure_loha(module, shapes);
            break;
        case Kind::lokr:
            measure_lokr(module, shapes);
            break;
        case Kind::glora:
            measure_glora(module, shapes);
            break;
        case Kind::oft:
        case Kind::boft:
            measure_oft(module, shapes);
            break;
        case Kind::oft_v2:
            measure_oft_v2(module, shapes);
            break;
        case Kind::diff:
            measure_whole(module, shapes, Role::diff);
            break;
        case Kind::set_weight:
            measure_whole(module, shapes, Role::set_weight);
            break;
    }
    if (module.has(Role::magnitude)) {
        check_magnitude(module, shapes);
    }
    check(!module.swap_halves || module.n_out % 2 == 0, ErrorKind::bad_file, file, ": ",
          module.stem, " has ", module.n_out, " outputs, an even number is expected");
}

}  // namespace flux2
