// Wrong command lines and wrong files, through the flux2 program: each ends with its exit code and
// one line that says what is wrong, and leaves nothing behind.
#include <flux2/image.hpp>
#include "support/cli.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::Arguments;
using test::fixture;
using test::joined;
using test::klein_parts;
using test::small_picture;

struct BadUse {
    Arguments arguments;
    int exit_code = 2;
    std::string says;  // a piece of the message
};

// With a prompt and everything else that is needed.
Arguments drawing(const Arguments& more) {
    return joined(joined(small_picture(), {"-p", "x"}), more);
}

bool is_error_line(const std::string& line) {
    return line.starts_with("flux2: ") && !line.starts_with("flux2: warning: ");
}

// Pictures go to a folder of their own, where nothing must be left.
void check_bad(const BadUse& use) {
    const test::TemporaryFolder out;
    Arguments arguments = use.arguments;
    const bool draws = !arguments.empty() && arguments.front().starts_with("-");
    if (draws && std::find(arguments.begin(), arguments.end(), "-o") == arguments.end()) {
        arguments = joined({"-o", (out / "out.png").string()}, arguments);
    }
    std::string line;
    for (const std::string& argument : use.arguments) {
        line += argument.substr(0, 60) + " ";
    }
    CAPTURE(line);
    const test::ProgramResult result = test::flux2_program(arguments);
    CHECK(result.exit_code == use.exit_code);
    CHECK_MESSAGE(result.err.find(use.says) != std::string::npos, "says: " << result.err);
    const std::vector<std::string> lines = test::lines_of(result.err);
    CHECK_MESSAGE(std::count_if(lines.begin(), lines.end(), is_error_line) == 1,
                  "says: " << result.err);
    CHECK(out.names().empty());
}

void check_all(const std::vector<BadUse>& uses) {
    for (const BadUse& use : uses) {
        check_bad(use);
    }
}

Image grey(int width, int height) {
    return {width, height,
            std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, 99)};
}

std::string text_of(const fs::path& path) {
    return path.string();
}

// 4000 bytes without a zero, the same in every run.
std::string junk() {
    std::string bytes;
    uint32_t state = 12345;
    for (int i = 0; i < 4000; ++i) {
        state = state * 1664525 + 1013904223;
        bytes += static_cast<char>(std::max(state >> 24, 1u));
    }
    return bytes;
}

TEST_CASE("unknown words and options are refused") {
    check_all({
        {{}, 2, "no prompt; add -p"},
        {{"frobnicate"}, 2, "there is no command 'frobnicate'"},
        {{""}, 2, "there is no command ''"},
        {{"--nonsense"}, 2, "nonsense"},
        {{"-Z"}, 2, "Z"},
        {{"-p"}, 2, "missing an argument"},
        {drawing({"-W"}), 2, "missing an argument"},
        {drawing({"red", "house"}), 2, "what is 'red'?"},
        {klein_parts(), 2, "no prompt; add -p"},
        {joined(klein_parts(), {"--json"}), 2, "no prompt; add -p"},
        {drawing({"--json", "--quiet"}), 2, "contradict"},
        {drawing({"--cache", "x"}), 2, "--cache and --no-cache contradict"},
        {drawing({"--prompt-file", "x"}), 2, "one of --prompt and --prompt-file"},
        {{"devices", "junk"}, 2, "devices takes no 'junk'"},
        {{"version", "junk"}, 2, "version takes no 'junk'"},
        {{"help", "junk"}, 2, "help takes no 'junk'"},
        {{"selftest", "junk"}, 3, "junk: no such file"},
        {{"selftest", "--threads", "-5"}, 2, "--threads -5 is out of range"},
        {{"selftest", "--threads", "100000"}, 2, "--threads 100000 is out of range"},
        {{"selftest", "--type", "Q99"}, 2, "unknown type 'Q99'"},
        {{"selftest", "--golden", "/no/such"}, 3, "no such folder"},
        {{"selftest", "--threads", "abc"}, 2, "--threads takes a whole number, not 'abc'"},
        {{"bench", "--repeat", "3x"}, 2, "--repeat takes a whole number, not '3x'"},
        {{"bench", "-W", "wide"}, 2, "--width takes a whole number, not 'wide'"},
        {{"bench"}, 2, "nothing to time"},
        {{"bench", "--kv", "--references", "1", "--stage", "next"}, 2, "need the first"},
        {{"bench", "junk"}, 2, "bench takes no argument 'junk'"},
    });
}

TEST_CASE("values that are no numbers are refused with the option's name") {
    check_all({
        {drawing({"-W", "wide"}), 2, "--width takes a whole number, not 'wide'"},
        {drawing({"-H", "64x"}), 2, "--height takes a whole number, not '64x'"},
        {drawing({"-W", ""}), 2, "--width takes a whole number, not ''"},
        {drawing({"-W", "99999999999"}), 2, "--width takes a whole number, not '99999999999'"},
        {drawing({"--steps", "1.5"}), 2, "--steps takes a whole number, not '1.5'"},
        {drawing({"--steps", "many"}), 2, "--steps takes a whole number, not 'many'"},
        {drawing({"-g", "nan"}), 2, "--guidance takes a number, not 'nan'"},
        {drawing({"-g", "inf"}), 2, "--guidance takes a number, not 'inf'"},
        {drawing({"-g", "4x"}), 2, "--guidance takes a number, not '4x'"},
        {drawing({"-g", "1e99"}), 2, "--guidance takes a number, not '1e99'"},
        {drawing({"-s", "-1"}), 2, "a seed is a number from 0"},
        {drawing({"-s", "seven"}), 2, "not 'seven'"},
        {drawing({"-s", "99999999999999999999"}), 2, "a seed is a number from 0"},
        {drawing({"-b", "two"}), 2, "--batch-count takes a whole number"},
        {drawing({"-t", "all"}), 2, "--threads takes a whole number"},
        {drawing({"--match-ref", "first"}), 2, "--match-ref takes a whole number"},
        {drawing({"--text-length", "long"}), 2, "--text-length takes a whole number"},
        {drawing({"--sigmas", "a,b"}), 2, "not 'a'"},
        {drawing({"--sigmas", "1,,0"}), 2, "not ''"},
        {drawing({"--sigmas", "1,0,"}), 2, "not ''"},
        {drawing({"--sigmas", "1,nan,0"}), 2, "not 'nan'"},
        {drawing({"--sigmas", ""}), 2, "an empty list of noise levels"},
        {drawing({"--max-vram", "lots"}), 2, "--max-vram: 'lots' is no amount of memory"},
        {drawing({"--max-vram", "-4G"}), 2, "'-4G' is no amount of memory"},
        {drawing({"--max-vram", "0.5"}), 2, "'0.5' is no amount of memory"},
        {drawing({"--max-vram", "1e300G"}), 2, "is no amount of memory"},
        {drawing({"--max-vram", ""}), 2, "'' is no amount of memory"},
    });
}

TEST_CASE("values out of range are refused with a suggestion") {
    const std::string picture = text_of(fixture("klein/ref_0.png"));
    std::string many_levels = "1";
    for (int i = 1; i < 1500; ++i) {
        many_levels += "," + std::to_string(1.0 - i / 1500.0);
    }
    check_all({
        {drawing({"-W", "100"}), 2, "a width of 100 pixels is no multiple of 16; use 96 or 112"},
        {drawing({"-H", "100"}), 2, "or --fit to round"},
        {drawing({"-W", "0"}), 2, "a width of 0 pixels is out of range; use 64 to 4096"},
        {drawing({"-H", "-64"}), 2, "a height of -64 pixels is out of range"},
        {drawing({"-H", "48"}), 2, "a height of 48 pixels is out of range"},
        {drawing({"-W", "2147483647"}), 2, "a width of 2147483647 pixels is out of range"},
        {drawing({"-W", "8192", "-H", "8192"}), 2,
         "over the limit of 4096 pixels a side; it would"},
        {drawing({"-W", "65536", "-H", "65536"}), 2, " GB"},
        {{"plan", "-m", test::tiny_model(), "-p", "x", "-W", "65536", "-H", "65536"}, 2, " GB"},
        {drawing({"--steps", "0"}), 2, "0 steps are out of range; use 1 to 1000"},
        {drawing({"--steps", "-1"}), 2, "-1 steps are out of range"},
        {drawing({"--steps", "100000"}), 2, "100000 steps are out of range"},
        {drawing({"-g", "-1"}), 2, "a guidance of -1 is out of range; use 0 to 100"},
        {drawing({"--cfg-scale", "-1"}), 2, "--cfg-scale -1 is out of range; use 0 to 100"},
        {drawing({"--cfg-interval", "0.5"}), 2, "--cfg-interval '0.5' has one number"},
        {drawing({"--cfg-interval", "0,x"}), 2, "--cfg-interval takes a number, not 'x'"},
        {drawing({"--cfg-interval", "0.5,0.2"}), 2, "guidance from 0.5 until 0.2 is no share"},
        {drawing({"-g", "1e9"}), 2, "is out of range; use 0 to 100"},
        {drawing({"-i", picture, "--strength", "0"}), 2, "a strength of 0 is out of range"},
        {drawing({"-i", picture, "--strength", "2"}), 2, "a strength of 2 is out of range"},
        {drawing({"--strength", "0.5"}), 2, "add --init-img"},
        {joined(klein_parts(), {"-p", "x", "--sigmas", "0.5,1,0"}), 2,
         "noise level 1 (number 2) is out of order"},
        {drawing({"--sigmas", "1,0.5,0"}), 2, "the noise levels given make 2 steps, but 1"},
        {joined(klein_parts(), {"-p", "x", "--sigmas", "2,0"}), 2, "noise level 2 (number 1)"},
        {joined(klein_parts(), {"-p", "x", "--sigmas", "0"}), 2, "at least one"},
        {joined(klein_parts(), {"-p", "x", "--sigmas", many_levels}), 2, "at most 1000"},
        {drawing({"-b", "0"}), 2, "--batch-count 0 is out of range"},
        {drawing({"--batch-size", "65"}), 2, "--batch-size 65 is out of range"},
        {drawing({"-b", "1000000"}), 2, "--batch-count 1000000 is out of range"},
        {drawing({"--match-ref", "0"}), 2, "--match-ref 0 is no reference; the first one is 1"},
        {joined(klein_parts(), {"-p", "x", "--match-ref", "5"}), 2,
         "the size of reference 5 is asked for, but there are 0"},
        {drawing({"-r", picture, "--match-ref", "1"}), 2, "both a size and the size"},
        {drawing({"-t", "-1"}), 2, "--threads -1 is out of range"},
        {drawing({"-t", "1000000"}), 2, "--threads 1000000 is out of range"},
        {drawing({"--text-length", "0"}), 2, "a text length of 0 tokens is out of range"},
        {drawing({"--text-length", "100000000"}), 2, "tokens is out of range"},
        {drawing({"--device", "GPU7"}), 2, "there is no device GPU7"},
        {drawing({"--type", "Q99"}), 2, "unknown type 'Q99'"},
        {drawing({"--variant", "schnell"}), 2, "unknown variant 'schnell'"},
        {drawing({"--rng", "dice"}), 2, "no noise generator is called 'dice'"},
        {drawing({"--alpha", "keep"}), 2, "--alpha keep is unknown"},
    });
}

TEST_CASE("prompt files and output names are checked before anything is made") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "empty.txt", std::string_view());
    test::write_file(folder / "blank.txt", std::string_view("\n\r\n\n"));
    test::write_file(folder / "latin1.txt", std::string_view("a house\na b\xE4r\n"));
    test::write_file(folder / "zero.txt", std::string_view("a\0b\n", 4));
    test::write_file(folder / "long.txt", std::string(2'000'000, 'a'));
    test::write_file(folder / "huge.txt", std::string(17 << 20, 'a'));
    fs::create_directory(folder / "folder.png");
    std::string thousand;
    for (int i = 0; i < 1000; ++i) {
        thousand += "a\n";
    }
    test::write_file(folder / "thousand.txt", thousand);
    const auto prompts = [&](const char* name, const Arguments& more = {}) {
        return joined(joined(small_picture(), {"--prompt-file", text_of(folder / name)}), more);
    };
    const auto output = [&](const std::string& name) {
        return drawing({"-o", text_of(folder / name)});
    };
    check_all({
        {prompts("missing.txt"), 3, "missing.txt: no such file"},
        {prompts("empty.txt"), 3, "holds no prompt"},
        {prompts("blank.txt"), 3, "holds no prompt"},
        {prompts("latin1.txt"), 3, "latin1.txt: line 2 holds bytes that are not UTF-8"},
        {prompts("zero.txt"), 3, "zero.txt: line 1 holds a zero byte"},
        {prompts("folder.png"), 3, "is a folder"},
        {prompts("huge.txt"), 3, "at most"},
        {prompts("long.txt"), 2, "a prompt of 2000000 bytes is too long"},
        {prompts("thousand.txt", {"-b", "10000"}), 2, "are too many"},
        {joined(small_picture(), {"--prompt-file", "-"}), 3, "holds no prompt"},
        {joined(small_picture(), {"--prompt-file", ""}), 2, "--prompt-file is given an empty name"},
        {output("x.gif"), 2, "ending in .png, .jpg, .jpeg, .webp or .bmp"},
        {output("x"), 2, "ending in .png"},
        {drawing({"-o", ""}), 2, "--output is given an empty name"},
        {output("%x.png"), 2, "% must be followed by d"},
        {output("%5%.png"), 2, "% must be followed by d"},
        {output("x.png%"), 2, "% must be followed by d"},
        {output("%999d.png"), 2, "% must be followed by d"},
        {output("empty.txt/x.png"), 3, "empty.txt is no folder"},
        {drawing({"-o", "/dev/stdout"}), 2, "add --quiet"},
        {output("folder.png"), 3, "is a folder"},
        {output(std::string(300, 'a') + ".png"), 3, "cannot be written"},
        {output(std::string(5000, 'a') + "/x.png"), 3, "cannot be written"},
        {drawing({"--preview", "x.gif"}), 2, "ending in .png"},
        {drawing({"--preview", text_of(folder / "empty.txt/x.png")}), 3, "is no folder"},
        {drawing({"--preview", ""}), 2, "--preview is given an empty name"},
    });
    CHECK(folder.names() == std::vector<std::string>{"blank.txt", "empty.txt", "folder.png",
                                                     "huge.txt", "latin1.txt", "long.txt",
                                                     "thousand.txt", "zero.txt"});
}

TEST_CASE("pictures that cannot be used are refused") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "text.png", std::string_view("this is no picture"));
    test::write_file(folder / "empty.png", std::string_view());
    save_image(folder / "tiny.png", grey(10, 10));
    save_image(folder / "long.png", grey(64, 1000));
    save_image(folder / "good.png", grey(64, 64));
    save_image(folder / "good.bmp", grey(64, 64));
    test::Bytes bytes = test::read_file(folder / "good.png");
    bytes.resize(bytes.size() - 20);
    test::write_file(folder / "cut.png", bytes);
    const auto reference = [&](const char* name) {
        return drawing({"-r", text_of(folder / name)});
    };
    Arguments twenty;
    for (int i = 0; i < 20; ++i) {
        twenty = joined(twenty, {"-r", text_of(folder / "good.png")});
    }
    check_all({
        {reference("missing.png"), 3, "missing.png: no such file"},
        {joined(reference("good.png"), {"--preview", text_of(folder / "good.png")}), 2,
         "would overwrite a picture that is read"},
        {reference("text.png"), 3, "is neither a PNG nor a JPEG"},
        {reference("empty.png"), 3, "is neither a PNG nor a JPEG"},
        {reference("good.bmp"), 3, "is neither a PNG nor a JPEG"},
        {reference("cut.png"), 3, "cut.png: the PNG ends"},
        {reference("tiny.png"), 2, "10 x 10 pixels is too small"},
        {reference("long.png"), 2, "64 x 1000 pixels is too long"},
        {drawing({"-r", text_of(folder.path())}), 3, "is a folder"},
        {drawing({"-r", ""}), 3, "no such file"},
        {drawing(twenty), 2, "20 references are over the limit of 16; it would need"},
        {drawing({"-i", text_of(folder / "missing.png")}), 3, "missing.png: no such file"},
        {drawing({"-i", text_of(folder / "cut.png")}), 3, "cut.png: the PNG ends"},
        {drawing({"-i", ""}), 2, "--init-img is given an empty name"},
        // Before the missing autoencoder.
        {{"--diffusion-model", text_of(fixture("klein/flux2.safetensors")), "-p", "x", "-r",
          text_of(folder / "missing.png")},
         3,
         "missing.png: no such file"},
    });
}

// A fixture file with one tensor's last size changed.
void write_changed(const fs::path& path, const char* part, const std::string& tensor_name,
                   size_t axis, int64_t size) {
    auto tensors = test::tensors_of(fixture(part));
    const auto tensor = std::find_if(tensors.begin(), tensors.end(),
                                     [&](const auto& t) { return t.name == tensor_name; });
    REQUIRE(tensor != tensors.end());
    const size_t unit = tensor->data.size() / static_cast<size_t>(tensor->shape[axis]);
    tensor->shape[axis] = size;
    tensor->data.resize(unit * static_cast<size_t>(size));
    test::write_file(path, test::safetensors_of(tensors));
}

Arguments parts(const fs::path& transformer, const fs::path& vae) {
    return {"--diffusion-model",
            transformer.string(),
            "--vae",
            vae.string(),
            "--no-cache",
            "-p",
            "x",
            "-W",
            "64",
            "-H",
            "64"};
}

// A fixture file without one of its tensors.
void write_without(const fs::path& path, const char* part, const std::string& tensor_name) {
    auto tensors = test::tensors_of(fixture(part));
    REQUIRE(std::erase_if(tensors, [&](const auto& t) { return t.name == tensor_name; }) == 1);
    test::write_file(path, test::safetensors_of(tensors));
}

TEST_CASE("no tensor of a transformer or a text encoder may be missing") {
    const test::TemporaryFolder folder;
    const fs::path flux2 = fixture("klein/flux2.safetensors");
    const fs::path vae = fixture("klein/vae.safetensors");
    for (const auto& tensor : test::tensors_of(flux2)) {
        write_without(folder / "flux2.safetensors", "klein/flux2.safetensors", tensor.name);
        check_bad({parts(folder / "flux2.safetensors", vae), 3, tensor.name});
    }
    fs::copy_file(fixture("klein/text_encoder.config.json"), folder / "text.config.json");
    for (const char* name : {"q_proj.weight", "q_norm.weight", "k_norm.weight", "v_proj.weight"}) {
        const std::string last = std::string("model.layers.35.self_attn.") + name;
        write_without(folder / "text.safetensors", "klein/text_encoder.safetensors", last);
        check_bad({joined(parts(flux2, vae), {"--llm", text_of(folder / "text.safetensors")}), 3,
                   std::string("tensor blk.35.attn_") + name[0]});
    }
}

TEST_CASE("model files that are missing, broken or of another kind are refused") {
    const test::TemporaryFolder folder;
    const fs::path flux2 = fixture("klein/flux2.safetensors");
    const fs::path vae = fixture("klein/vae.safetensors");
    test::write_file(folder / "empty.safetensors", std::string_view());
    test::write_file(folder / "text.safetensors", std::string_view("this is no model at all\n"));
    test::Bytes half = test::read_file(flux2);
    half.resize(half.size() / 2);
    test::write_file(folder / "half.safetensors", half);
    test::write_file(folder / "header.gguf",
                     test::ByteWriter().raw("GGUF").u32(3).u64(UINT64_MAX).u64(7).bytes());
    test::write_file(folder / "version.gguf",
                     test::ByteWriter().raw("GGUF").u32(77).u64(0).u64(0).bytes());
    test::write_file(folder / "short.gguf", std::string_view("GGUF"));
    fs::create_directory(folder / "nothing");
    const auto transformer = [&](const char* name) { return parts(folder / name, vae); };
    check_all({
        {{"-p", "x", "--vae", text_of(vae)}, 3, "no transformer: add --diffusion-model FILE"},
        {transformer("missing.safetensors"), 3, "missing.safetensors: no such file"},
        {transformer("empty.safetensors"), 3, "empty.safetensors"},
        {transformer("text.safetensors"), 3, "text.safetensors"},
        {transformer("half.safetensors"), 3, "half.safetensors"},
        {transformer("header.gguf"), 3, "header.gguf"},
        {transformer("version.gguf"), 3, "version.gguf"},
        {transformer("short.gguf"), 3, "short.gguf"},
        {transformer("nothing"), 3, "nothing"},
        {parts(vae, vae), 3, "--diffusion-model takes the transformer"},
        {parts(flux2, flux2), 3, "is of the kind transformer, but --vae takes"},
        {joined(parts(flux2, vae), {"--llm", vae.string()}), 3, "but --llm takes the text encoder"},
        {{"--diffusion-model", flux2.string(), "-p", "x"}, 3, "no autoencoder: add --vae FILE"},
        {parts(flux2, vae), 3, "no text encoder: add --llm FILE"},
        {joined(parts(flux2, vae), {"--llm", text_of(fixture("klein/text_encoder.safetensors"))}),
         3, "has no tokenizer.json beside it"},
        {joined(parts(flux2, vae), {"--vae", ""}), 2, "--vae is given an empty name"},
        {{"-m", text_of(folder / "nothing"), "-p", "x"}, 3, "holds no part of FLUX.2"},
        {{"-m", text_of(folder / "missing"), "-p", "x"}, 3, "missing"},
        {{"-m", vae.string(), "-p", "x"}, 2, "is a file, not a folder"},
        {{"-m", std::string(5000, 'a'), "-p", "x"}, 3, "aaaa"},
    });
}

TEST_CASE("parts that do not fit each other are refused") {
    const test::TemporaryFolder folder;
    const fs::path flux2 = fixture("klein/flux2.safetensors");
    const fs::path vae = fixture("klein/vae.safetensors");
    write_changed(folder / "wide.safetensors", "klein/flux2.safetensors", "txt_in.weight", 0, 384);
    auto tensors = test::tensors_of(vae);
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name == "decoder.conv_in.weight") {  // FLUX.1's has 16 latent channels
            tensor.data.resize(tensor.data.size() / static_cast<size_t>(tensor.shape[2]) * 16);
            tensor.shape[2] = 16;
        }
    }
    test::write_file(folder / "flux1.safetensors", test::safetensors_of(tensors));
    const Arguments encoder = {"--llm", text_of(fixture("klein/text_encoder.safetensors"))};
    check_all({
        {joined(parts(folder / "wide.safetensors", vae), encoder), 3, "384"},
        {joined(parts(flux2, folder / "flux1.safetensors"), encoder), 3, "flux1.safetensors"},
    });
}

TEST_CASE("noise and text features of other sizes are refused") {
    const test::TemporaryFolder folder;
    const auto write = [&](const char* name, const std::vector<test::TestTensor>& tensors) {
        test::write_file(folder / name, test::safetensors_of(tensors));
    };
    const auto features = [](const char* name, int64_t width, int64_t n) {
        return test::counting_tensor(name, {width, n, 1});
    };
    write("noise.safetensors", {test::counting_tensor("noise", {6, 4, 128, 1})});
    write("channels.safetensors", {test::counting_tensor("noise", {4, 4, 16, 1})});
    write("none.safetensors", {test::counting_tensor("noise", {0, 4, 128, 1})});
    write("other.safetensors", {test::counting_tensor("sound", {4, 4, 128, 1})});
    write("wide.safetensors", {test::counting_tensor("noise", {5000, 1, 1, 1})});
    write("width.safetensors", {features("prompt_embeds", 100, 8)});
    write("tokens.safetensors", {features("prompt_embeds", 192, 41000)});
    write("alone.safetensors", {features("prompt_embeds", 192, 8)});
    write("fewer.safetensors",
          {features("prompt_embeds", 192, 8), features("negative_prompt_embeds", 192, 4)});
    write("narrow.safetensors",
          {features("prompt_embeds", 192, 8), features("negative_prompt_embeds", 64, 8)});
    const auto noise = [&](const char* name) {
        return drawing({"--noise", text_of(folder / name)});
    };
    const auto embeds = [&](const char* name) {
        return joined(klein_parts(), {"-p", "x", "--variant", "base", "--embeds",
                                      text_of(folder / name), "-W", "64", "-H", "64"});
    };
    check_all({
        {noise("missing.safetensors"), 3, "no such file"},
        {noise("noise.safetensors"), 3, "its noise is for 96x64 pixels"},
        {noise("channels.safetensors"), 3, "16 channels"},
        {noise("none.safetensors"), 3, "none.safetensors"},
        {noise("other.safetensors"), 3, "tensor noise is missing"},
        {joined(klein_parts(), {"-p", "x", "--noise", text_of(folder / "wide.safetensors")}), 3,
         "is for no picture that can be made"},
        {drawing({"--noise", ""}), 2, "--noise is given an empty name"},
        {embeds("missing.safetensors"), 3, "no such file"},
        {embeds("width.safetensors"), 3, "its prompt_embeds are 100 wide"},
        {embeds("tokens.safetensors"), 3, "its prompt_embeds have 41000 tokens"},
        {embeds("alone.safetensors"), 3, "negative_prompt_embeds is missing"},
        {embeds("fewer.safetensors"), 3, "both must have as many"},
        {embeds("narrow.safetensors"), 3, "its negative_prompt_embeds are 64 wide"},
        {embeds("noise.safetensors"), 3, "prompt_embeds is missing"},
    });
}

TEST_CASE("junk in the place of any file is refused") {
    const test::TemporaryFolder folder;
    const std::string name = text_of(folder / "junk.bin");
    test::write_file(folder / "junk.bin", junk());
    check_all({
        {drawing({"--diffusion-model", name}), 3, "junk.bin"},
        {drawing({"--vae", name}), 3, "junk.bin"},
        {drawing({"--llm", name}), 3, "junk.bin"},
        {drawing({"-m", name}), 2, "junk.bin"},
        {drawing({"-r", name}), 3, "junk.bin"},
        {drawing({"-i", name}), 3, "junk.bin"},
        {drawing({"--noise", name}), 3, "junk.bin"},
        {drawing({"--embeds", name}), 3, "junk.bin"},
        {drawing({"-o", name}), 2, "junk.bin"},
        {drawing({"--preview", name}), 2, "junk.bin"},
        {{"redo", name}, 3, "junk.bin"},
        {{"info", name}, 3, "junk.bin"},
        {{"plan", "--diffusion-model", name}, 3, "junk.bin"},
        {{"bench", "--diffusion-model", name}, 3, "junk.bin"},
    });
    CHECK(folder.names() == std::vector<std::string>{"junk.bin"});
}

TEST_CASE("redo, info and plan refuse what they cannot use") {
    const test::TemporaryFolder folder;
    const auto write = [&](const char* name, const std::string& settings) {
        save_image(folder / name, grey(64, 64), {{"flux2", settings}});
        return Arguments{"redo", text_of(folder / name), "--no-cache", "-o",
                         text_of(folder / "again.png")};
    };
    save_image(folder / "plain.png", grey(64, 64));
    save_image(folder / "plain.jpg", grey(64, 64));
    const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
    check_all({
        {{"redo"}, 2, "which picture?"},
        {{"redo", text_of(folder / "missing.png")}, 3, "missing.png: no such file"},
        {{"redo", text_of(folder.path())}, 3, "is a folder"},
        {{"redo", text_of(folder / "plain.png")}, 3, "holds no settings of flux2"},
        {{"redo", text_of(folder / "plain.jpg")}, 3, "holds no settings of flux2"},
        {{"redo", text_of(folder / "plain.png"), "more"}, 2, "what is 'more'?"},
        {write("broken.png", "{\"prompt\": "), 3, "the settings stored in it are broken"},
        {write("array.png", "[1, 2]"), 3, "the settings stored in it are broken"},
        {write("deep.png", "{\"model\":" + deep + "}"), 3, "the settings stored in it are broken"},
        {write("empty.png", "{}"), 3, "its settings name no transformer"},
        {write("prompt.png", "{\"prompt\": 5}"), 3, "broken at 'prompt'"},
        {write("width.png", "{\"width\": 1e300}"), 3, "broken at 'width'"},
        {write("height.png", "{\"height\": 5000000000}"), 3, "broken at 'height'"},
        {write("seed.png", "{\"seed\": -5}"), 3, "broken at 'seed'"},
        {write("guidance.png", "{\"guidance\": 1e300}"), 3, "broken at 'guidance'"},
        {write("references.png", "{\"references\": [1, 2]}"), 3, "broken at 'references'"},
        {write("levels.png", "{\"own_sigmas\": [\"a\"]}"), 3, "broken at 'own_sigmas'"},
        {write("model.png", "{\"model\": {\"vae\": {\"file\": []}}}"), 3, "broken at 'file'"},
        {write("gone.png", R"({"model": {"transformer": {"file": "/no/such"}}})"), 3,
         "/no/such: no such file"},
        {{"info"}, 2, "nothing to look at"},
        {{"info", ""}, 3, "no such file"},
        {{"info", "--nonsense"}, 2, "nonsense"},
        {{"info", text_of(folder / "missing.gguf")}, 3, "missing.gguf: no such file"},
        {{"info", text_of(folder.path())}, 3, "holds no part of FLUX.2"},
        {{"plan", "-m", text_of(folder.path())}, 3, "holds no part of FLUX.2"},
        {{"plan", "junk"}, 2, "what is 'junk'?"},
    });
    CHECK_FALSE(fs::exists(folder / "again.png"));
}

TEST_CASE("prompts may be of any bytes and any length") {
    const test::TemporaryFolder folder;
    const test::TemporaryFolder out;
    const Arguments reading = joined(
        klein_parts(), {"--llm", text_of(test::write_reading_encoder(folder)), "-W", "64", "-H",
                        "64", "--steps", "1", "--text-length", "32", "-o", text_of(out / "x.png")});
    for (const Arguments& prompt :
         {Arguments{"-p", "\xff\xfe\xc3(\xed\xa0\x80"}, Arguments{"-p", ""},
          Arguments{"-p", std::string(100'000, 'a')}}) {
        CAPTURE(prompt.back().substr(0, 20));
        const test::ProgramResult result = test::flux2_program(joined(reading, prompt));
        CHECK_MESSAGE(result.exit_code == 0, "says: " << result.err.substr(0, 1000));
        CHECK(out.names() == std::vector<std::string>{"x.png"});
        // The prompt is stored with the picture, and read back from it.
        const auto again = test::flux2_program(
            {"redo", text_of(out / "x.png"), "--no-cache", "-o", text_of(out / "again.png")});
        CHECK(again.exit_code == 0);
        CHECK(load_image(out / "again.png").rgb == load_image(out / "x.png").rgb);
        fs::remove(out / "again.png");
    }
}

// Draws with a text encoder and a cache at this place.
test::ProgramResult draw_with_cache(const test::TemporaryFolder& folder, const fs::path& encoder,
                                    const fs::path& cache) {
    Arguments arguments =
        joined(parts(fixture("klein/flux2.safetensors"), fixture("klein/vae.safetensors")),
               {"--llm", text_of(encoder), "--cache", text_of(cache), "--steps", "1",
                "--text-length", "32", "-o", text_of(folder / "x.png")});
    std::erase(arguments, "--no-cache");
    return test::flux2_program(arguments);
}

TEST_CASE("a cache that cannot be used is told and done without") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "file", std::string_view("no folder"));
    const auto result =
        draw_with_cache(folder, test::write_reading_encoder(folder), folder / "file");
    CHECK(result.exit_code == 0);
    CHECK(result.err.find("flux2: warning: nothing is kept in the cache") != std::string::npos);
    CHECK(fs::exists(folder / "x.png"));
}

TEST_CASE("broken files in a cache cost no picture") {
    const test::TemporaryFolder folder;
    const fs::path encoder = test::write_reading_encoder(folder);
    const fs::path hashes = folder / "cache/hashes.json";
    fs::create_directory(folder / "cache");
    for (const std::string& broken : std::vector<std::string>{
             junk(), "{\"a\":" + std::string(300'000, '[') + std::string(300'000, ']') + "}",
             std::string(2'000'000, ' '), "[]", ""}) {
        test::write_file(hashes, broken);
        CHECK(draw_with_cache(folder, encoder, folder / "cache").exit_code == 0);
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / "cache")) {
        test::write_file(entry.path(), junk());
    }
    const auto result = draw_with_cache(folder, encoder, folder / "cache");
    CHECK(result.exit_code == 0);
    CHECK(result.err.find(" is damaged, removed and made again") != std::string::npos);
    fs::remove(hashes);
    fs::create_directory(hashes);
    CHECK(draw_with_cache(folder, encoder, folder / "cache").exit_code == 0);
}

}  // namespace
}  // namespace flux2
