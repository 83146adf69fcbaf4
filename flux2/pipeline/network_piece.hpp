// A small piece of each network of a model, to be timed: a block of each kind with its real
// weights, in the form in which the whole network is computed. Autoencoders are taken whole.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/backend.hpp"
#include "networks/part.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"

#include <cstdint>
#include <functional>

namespace flux2 {

struct NetworkPiece {
    using Run = std::function<void()>;
    // What computes the piece once, at a size: so many tokens, or pixels of autoencoders, which are
    // squares of multiples of 16 a side. Valid until the next one is prepared.
    using Prepare = std::function<Run(int64_t size)>;

    Prepare network;
    Prepare attention;  // alone; empty where has_attention_piece says so
};

// Whether attention is a large share of the part's work, with many tokens.
constexpr bool has_attention_piece(Part part) {
    return part == Part::transformer || part == Part::vae;
}

// Loads the weights. Borrows backend and model. Throws out_of_memory.
NetworkPiece make_piece(const Backend& backend, const Model& model, const LoadOptions& options,
                        Part part, Placement placement);

}  // namespace flux2
