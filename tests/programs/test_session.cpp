// The interactive session, typed at a terminal.
#include <flux2/image.hpp>
#include "support/cli.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::joined;

// The small picture of other tests, drawn from prompts that are typed.
test::Arguments small_session() {
    static const test::TemporaryFolder folder;
    static const std::string encoder = test::write_reading_encoder(folder).string();
    return joined(test::klein_parts(), {"--llm", encoder, "--text-length", "32", "-W", "64", "-H",
                                        "64", "--steps", "1"});
}

class Typist {
  public:
    explicit Typist(const test::TemporaryFolder& folder, const std::string& output = "a.png",
                    const test::Arguments& more = {})
        : program_(joined(joined(small_session(), {"-o", (folder / output).string()}), more)) {
        greeting_ = program_.wait_for("Type a prompt, or help.");
        program_.wait_for("> ");
    }

    const std::string& greeting() const { return greeting_; }

    // Types a line and returns what is answered up to the next prompt.
    std::string say(const std::string& line) {
        program_.type(line + "\n");
        return program_.wait_for("\n> ");
    }
    // The same for a line without an answer.
    void set(const std::string& line) {
        program_.type(line + "\n");
        CHECK(program_.wait_for("> ") == "> ");
    }
    test::TerminalProgram& program() { return program_; }

  private:
    test::TerminalProgram program_;
    std::string greeting_;
};

std::string stored_settings(const fs::path& picture) {
    for (const ImageText& text : read_image_texts(picture)) {
        if (text.key == "flux2") {
            return text.text;
        }
    }
    return "";
}

TEST_CASE("prompts become pictures, settings hold, results serve as references") {
    const test::TemporaryFolder folder;
    Typist user(folder);
    CHECK(has(user.say("a red house"), "$1 = " + (folder / "a-001.png").string()));
    CHECK(load_image(folder / "a-001.png").width == 64);
    user.set("");
    user.set("  width = 80 ");
    user.set("seed=2147483647");
    user.set("input_images=$1");
    CHECK(has(user.say("the house = at night"), "$2 = " + (folder / "a-002.png").string()));
    CHECK(load_image(folder / "a-002.png").width == 80);
    const std::string settings = stored_settings(folder / "a-002.png");
    CHECK(has(settings, "a-001.png"));
    CHECK(has(settings, "2147483647"));
    CHECK(has(settings, "the house = at night"));

    const std::string shown = user.say("show");
    CHECK(has(shown, "width=80\n"));
    CHECK(has(shown, "seed=2147483647\n"));
    CHECK(has(shown, "input_images=" + (folder / "a-001.png").string()));
    user.set("input_images=style=$1");
    CHECK(has(user.say("show"), "input_images=style=" + (folder / "a-001.png").string()));
    user.set("width=");
    user.set("height=");
    user.set("match_image_size=0");
    CHECK(has(user.say("a third"), "$3"));
    CHECK(load_image(folder / "a-003.png").width == 64);
    CHECK(has(stored_settings(folder / "a-003.png"), "a third. Apply the style from image 1."));
    CHECK(has(user.say("history"), "$2  " + (folder / "a-002.png").string() + "  the house"));
    CHECK(has(user.say("help"), "key=value"));
    user.program().type("quit\n");
    CHECK(user.program().wait_for_exit(10) == 0);
    CHECK(folder.names() == std::vector<std::string>{"a-001.png", "a-002.png", "a-003.png"});
}

TEST_CASE("wrong lines are answered by a sentence, and the session goes on") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "text.png", std::string_view("no picture"));
    Typist user(folder);
    CHECK(has(user.say("width=wide"), "flux2: width takes a whole number, not 'wide'"));
    CHECK(has(user.say("steps=99999999999"), "flux2: steps takes a whole number"));
    CHECK(has(user.say("guidance=nan"), "flux2: guidance takes a number, not 'nan'"));
    CHECK(has(user.say("guidance=1,2"), "flux2: guidance takes a number, not '1,2'"));
    CHECK(has(user.say("seed=-1"), "flux2: a seed is a number from 0"));
    CHECK(has(user.say("match_image_size=-1"), "flux2: match_image_size counts"));
    CHECK(has(user.say("widht=64"), "flux2: there is no setting widht; help lists them"));
    CHECK(has(user.say("input_images=$1"), "flux2: $1 is no result of this session"));
    CHECK(has(user.say("input_images=$x"), "flux2: "));
    CHECK(has(user.say("input_images=" + (folder / "none.png").string()), "no such file"));
    CHECK(has(user.say("input_images=" + (folder / "text.png").string()), "neither a PNG nor"));
    user.set("width=100");
    CHECK(has(user.say("a house"), "flux2: a width of 100 pixels is no multiple of 16"));
    user.set("width=64");
    user.set("steps=0");
    CHECK(has(user.say("a house"), "flux2: 0 steps are out of range"));
    user.set("steps=1");
    CHECK(has(user.say("a house"), "$1 = "));
    user.program().type("\x04");  // end of input
    CHECK(user.program().wait_for_exit(10) == 0);
    CHECK(folder.names() == std::vector<std::string>{"a-001.png", "text.png"});
}

TEST_CASE("a line sets several things, and draws when the prompt is one of them") {
    const test::TemporaryFolder folder;
    fs::copy_file(test::fixture("klein/ref_0.png"), folder / "a b,c.png");
    Typist user(folder);
    CHECK(has(user.say("run"), "flux2: there is no prompt to draw again"));
    user.set("width=80 height=96 seed=5 negative_prompt=\"blurry, dark\"");
    const std::string picture = (folder / "a b,c.png").string();
    user.set("input_images=\"" + picture + "\" match_image_size=");
    const std::string shown = user.say("show");
    CHECK(has(shown, "width=80\nheight=96\n"));
    CHECK(has(shown, "negative_prompt=blurry, dark\n"));
    CHECK(has(shown, "input_images=" + picture + "\n"));
    CHECK(has(user.say("prompt=\"a = house\" width=64 cfg_scale=2"), "$1 = "));
    const Image first = load_image(folder / "a-001.png");
    CHECK(first.width == 64);
    CHECK(first.height == 96);
    const std::string settings = stored_settings(folder / "a-001.png");
    CHECK(has(settings, "\"prompt\":\"a = house\""));
    CHECK(has(settings, "\"cfg_scale\":2.0"));
    CHECK(has(user.say("run"), "$2 = "));
    CHECK(load_image(folder / "a-002.png").rgb == first.rgb);
    CHECK(has(user.say("history"), "a-002.png  a = house"));
}

TEST_CASE("reset takes settings back to the command line's, and a bad line changes none") {
    const test::TemporaryFolder folder;
    Typist user(folder, "a.png", {"-s", "9"});
    user.set("seed=5 steps=2 cfg_interval=0.2,0.8 strength=0.5");
    CHECK(has(user.say("width=128 height=tall"), "flux2: height takes a whole number"));
    CHECK(has(user.say("show"), "width=64\nheight=64\nsteps=2\n"));
    CHECK(has(user.say("show"), "cfg_interval=0.2,0.8\nseed=5\n"));
    user.set("reset seed");
    CHECK(has(user.say("show"), "steps=2\n"));
    CHECK(has(user.say("show"), "seed=9\n"));
    user.set("reset");
    CHECK(has(user.say("show"), "steps=1\n"));
    CHECK(has(user.say("show"), "strength=\n"));
    CHECK(has(user.say("reset button"), "$1 = "));
    CHECK(has(user.say("init_img=$1 strength=0.9 prompt=a house"), "$2 = "));
    const std::string settings = stored_settings(folder / "a-002.png");
    CHECK(has(settings, "a-001.png"));
    CHECK(has(settings, "\"prompt\":\"a house\""));
    CHECK(has(user.say("mask=" + (folder / "none.png").string()), "no such file"));
    user.set("mask=$1");
    CHECK(has(user.say("show"), "mask=" + (folder / "a-001.png").string() + "\n"));
    user.set("mask_grow=3 mask_blur=5 inpaint_area=masked outpaint=\"right=64,top=16\"");
    CHECK(has(user.say("show"),
              "mask_grow=3\nmask_blur=5\ninpaint_area=masked\n"
              "outpaint=left=0,top=16,right=64,bottom=0\n"));
    CHECK(has(user.say("inpaint_area=half"), "use whole or masked"));
    user.set("outpaint= init= mask=");
    CHECK(has(user.say("show"), "init_img=\nstrength=0.9\nmask=\n"));
}

TEST_CASE("a session uses LoRAs until they are removed, and those of tags once") {
    const test::TemporaryFolder folder;
    const test::TemporaryFolder loras;
    const std::string a = (loras / "a.safetensors").string();
    const std::string b = (loras / "b.safetensors").string();
    test::write_small_lora(a);
    test::write_small_lora(b);
    Typist user(folder, "a.png", {"--lora-dir", loras.path().string()});
    CHECK(has(user.say("/lora"), "no LoRA is in use"));
    CHECK(has(user.say("/lora " + a + ":0.5"), "LoRA 1: " + a + ":0.5\n"));
    CHECK(has(user.say("a house <lora:b:0.25> at night"), "$1 = "));
    const std::string settings = stored_settings(folder / "a-001.png");
    CHECK(has(settings, a));
    CHECK(has(settings, b));
    CHECK(has(settings, "\"a house at night\""));
    CHECK(has(user.say("a tree"), "$2 = "));
    CHECK_FALSE(has(stored_settings(folder / "a-002.png"), b));
    CHECK(has(user.say("/lora " + b), "LoRA 2: " + b + ":1\n"));
    CHECK(has(user.say("/lora " + a + ":-1"), "LoRA 1: " + a + ":-1\n"));
    CHECK(has(user.say("/lora remove 1"), "LoRA 1: " + b + ":1\n"));
    CHECK(has(user.say("show"), "LoRA 1: " + b + ":1\n"));
    CHECK(has(user.say("/lora clear"), "no LoRA is in use"));
    CHECK(has(user.say("a hill"), "$3 = "));
    CHECK_FALSE(has(stored_settings(folder / "a-003.png"), loras.path().string()));

    CHECK(has(user.say("/lora remove 1"), "flux2: there is no LoRA number 1"));
    CHECK(has(user.say("/lora remove"), "flux2: /lora remove takes a whole number"));
    CHECK(has(user.say("/lora /no/such.safetensors:1"), "flux2: /no/such.safetensors: no such"));
    CHECK(has(user.say("/lora " + a + ":strong"), "'strong' is no strength"));
    CHECK(has(user.say("a <lora:c:1> house"), "flux2: there is no LoRA 'c'"));
    CHECK(has(user.say("help"), "/lora FILE:0.8"));
}

TEST_CASE("pictures named by a seed that repeats do not replace each other") {
    const test::TemporaryFolder folder;
    Typist user(folder, "{seed}.png");
    user.set("seed=7");
    CHECK(has(user.say("one"), "$1 = " + (folder / "7.png").string()));
    CHECK(has(user.say("two"), "$2 = " + (folder / "7-002.png").string()));
    CHECK(has(user.say("three"), "$3 = " + (folder / "7-003.png").string()));
    user.program().type("exit\n");
    CHECK(user.program().wait_for_exit(10) == 0);
}

TEST_CASE("a session leaves the pictures of earlier ones alone") {
    const test::TemporaryFolder folder;
    {
        Typist user(folder, "new/a.png");
        CHECK_FALSE(has(user.greeting(), "numbered"));
        CHECK(has(user.say("one"), "$1 = " + (folder / "new/a-001.png").string()));
    }
    const test::Bytes first = test::read_file(folder / "new/a-001.png");
    Typist user(folder, "new/a.png");
    CHECK(has(user.greeting(), "pictures are numbered from 2 on"));
    CHECK(has(user.say("another"), "$1 = " + (folder / "new/a-002.png").string()));
    // Meanwhile a second session draws into the same folder.
    Typist second(folder, "new/a.png");
    CHECK(has(second.say("a third"), "$1 = " + (folder / "new/a-003.png").string()));
    CHECK(has(user.say("a fourth"), "$2 = " + (folder / "new/a-004.png").string()));
    CHECK(test::read_file(folder / "new/a-001.png") == first);
    Typist seeds(folder, "new/{seed}.png");
    seeds.set("seed=7");
    CHECK(has(seeds.say("one"), "$1 = " + (folder / "new/7.png").string()));
    Typist again(folder, "new/{seed}.png");
    again.set("seed=7");
    CHECK(has(again.say("one"), "$1 = " + (folder / "new/7-002.png").string()));
}

TEST_CASE("a session that overwrites begins at the first number") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "a-001.png", std::string_view("earlier"));
    Typist user(folder, "a.png", {"--overwrite"});
    CHECK(has(user.say("one"), "$1 = " + (folder / "a-001.png").string()));
    CHECK(load_image(folder / "a-001.png").width == 64);
    CHECK(folder.names() == std::vector<std::string>{"a-001.png"});
}

TEST_CASE("a session draws to a device that stays one") {
    const test::TemporaryFolder folder;
    fs::create_symlink("/dev/null", folder / "null.png");
    Typist user(folder, "null.png");
    CHECK(has(user.say("one"), "$1 = "));
    CHECK(has(user.say("two"), "$2 = "));
    CHECK(fs::is_character_file(folder / "null.png"));
    CHECK(folder.names() == std::vector<std::string>{"null.png"});
}

TEST_CASE("Ctrl-C ends a picture first, and the session at its prompt") {
    const test::TemporaryFolder folder;
    Typist user(folder);
    user.set("width=1024");
    user.set("height=1024");
    user.program().type("a large picture\n");
    user.program().wait_for("denoising");
    user.program().type("\x03");
    user.program().wait_for("flux2: cancelled");
    user.program().wait_for("> ");
    user.set("width=64");
    user.set("height=64");
    CHECK(has(user.say("a small one"), "$1 = "));
    user.program().type("\x03");
    CHECK(user.program().wait_for_exit(3) == 130);
    CHECK(folder.names() == std::vector<std::string>{"a-001.png"});
}

TEST_CASE("a session without a transformer ends before its first prompt") {
    test::TerminalProgram program(
        {"--no-cache", "--vae", test::fixture("klein/vae.safetensors").string()});
    program.wait_for("flux2: no transformer");
    CHECK(program.wait_for_exit(10) == 3);
}

}  // namespace
}  // namespace flux2
