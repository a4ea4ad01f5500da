//! Which steps there are, in which order, and with which settings the tests are built.
//!
//! Builds: `tests` compiles the whole workspace with checks, by clippy's compiler, so that linting and compiling are one;
//! `default` and `edge` add one program each to it, with the default features (what the README's first command compiles) and
//! without them; `previous` and `product` are the two programs that the end-to-end tests run. The product comes after them, so
//! that `target/release/thalweg` is what they run and what stays. It is compiled without what only tests switch on, and a warning
//! fails it.

use super::step::{Selection, Step, Work};
use super::surroundings::{Extent, Surroundings};
use crate::workspace::Package;

/// End-to-end tests that judge by times: what their names begin with.
const BY_THE_CLOCK: &[&str] = &["attribution::", "streams::", "loads::", "rates::high_gets"];
/// Programs that judge by times, or by what else the machine does.
const PROGRAMS_BY_THE_CLOCK: &[&str] =
    &["bench", "bench/race", "emulator", "lab", "lab/laboratory", "lab/validation", "store/slow_storage"];
const SEEDS_OF_A_COMMIT: usize = 250;

/// The emulator is judged by how late packets leave; the second decoder reads every session with each of its bytes damaged;
/// every race writes gigabytes of generated content; and the intrinsics of the CRC in `model` are calls where nothing is
/// inlined: with level 1 the tests of `object` need 20 s instead of 38 s. `plan` solves thousands of models, `cluster` goes through
/// all schedules of its hosts.
const OPTIMIZED: &[&str] = &["cluster", "content", "emulator", "model", "plan", "wire"];

const UNITS: Selection = Selection {
    is_meant: |name| name != END_TO_END && !PROGRAMS_BY_THE_CLOCK.contains(&name),
    filters: &[],
    is_without: false,
    programs_at_a_time: 2,
    threads: 4,
};
const SLOWLY: Selection =
    Selection { is_meant: |name| PROGRAMS_BY_THE_CLOCK.contains(&name), programs_at_a_time: 1, threads: 2, ..UNITS };
const END_TO_END_TESTS: Selection = Selection {
    is_meant: |name| name == END_TO_END,
    filters: BY_THE_CLOCK,
    is_without: true,
    programs_at_a_time: 1,
    threads: 8,
};
/// They wait for networks most of the time: eleven of them need 8 s of a processor.
const END_TO_END_SLOWLY: Selection = Selection { is_without: false, threads: 3, ..END_TO_END_TESTS };
const END_TO_END: &str = "thalweg/e2e";

/// Own crates with checks and not optimized: `store` compiles in a quarter of the time that level 1 takes, and a simulated
/// seed needs less than twice the processor; what encrypts, digests and matches is from outside, and optimized.
pub fn checked(packages: &[Package]) -> String {
    let settings = "codegen-units = 16\noverflow-checks = true\ndebug-assertions = true\n";
    let section = |name: &str| {
        let level = u8::from(OPTIMIZED.contains(&name));
        format!("[profile.release.package.{name}]\nopt-level = {level}\n{settings}")
    };
    packages.iter().map(|package| section(&package.name)).collect()
}

/// The steps that an extent has.
pub fn steps(surroundings: &Surroundings) -> Vec<Step> {
    let seed = surroundings.seed;
    let mut steps = vec![
        usual("tools", Work::Tools),
        quick("fmt", Work::Cargo(words("fmt --all -- --check"))),
        quick("tidy", Work::Tidy),
        quick(
            "build and clippy",
            Work::Tested(words("test --no-run --all-targets --workspace --features thalweg/full")),
        ),
        usual("edge build", Work::Tested(words("test --no-run --workspace --no-default-features --bin thalweg"))),
        usual("default build", Work::Tested(words("test --no-run --workspace --bin thalweg"))),
        usual("previous release", Work::Previous),
        // Tests that wait, while a compiler works.
        Step {
            is_beside: true,
            ..usual("product", Work::Product(words("build --release --locked -p thalweg --features full")))
        },
        Step { is_beside: true, ..quick("tests", Work::Tests(UNITS)) },
        usual("end to end", Work::Tests(END_TO_END_TESTS)),
        quick("tests by the clock", Work::Tests(SLOWLY)),
        usual("end to end by the clock", Work::Tests(END_TO_END_SLOWLY)),
        usual("package", Work::Program("xtask", words("deb --try --quick"))),
        beside("simulation", format!("simulate --first {seed} --seeds {SEEDS_OF_A_COMMIT}")),
        beside("simulation of several hosts", format!("simulate --hosts --first {seed} --seeds 400")),
        beside("queue", format!("queue --first {seed} --seeds 300")),
        beside("path attacks", "paths --rounds 60".to_owned()),
        beside("crowded endpoint", "crowd --directories 25000 --keys 16".to_owned()),
        beside("crash states", format!("crash-states --scenarios 1 --first {seed}")),
        beside("museum", "museum --simulation".to_owned()),
        beside("bit flips", format!("flips --flips 600 --seed {seed}")),
        beside("memory of messages", "memory --sessions 4".to_owned()),
        beside("enrolments", format!("enrolments --rounds 1 --seed {seed}")),
        beside("lying senders", format!("sender --trials 2 --seed {seed}")),
        beside("other users here", "locals --rounds 1".to_owned()),
        beside("errors of storage", format!("errno --seed {seed}")),
        beside("kill points", format!("kill --seed {seed}")),
        beside("hostile peers", format!("hostile --seed {seed}")),
        beside("networks", format!("network --seed {seed}")),
        beside("faults from outside", format!("rivals --trials 1 --tool thalweg --seed {seed}")),
        beside("hosts that fail", format!("crew --seed {seed}")),
    ];
    steps.extend(larger(surroundings));
    steps.retain(|step| step.extent <= surroundings.extent);
    steps
}

/// What takes hours, or tools that few hosts have.
fn larger(surroundings: &Surroundings) -> Vec<Step> {
    let seed = surroundings.seed;
    let larger = |name, work| Step { name, work, extent: Extent::Full, is_beside: false };
    let trial = |name, command: String| larger(name, Work::Trial(words(&command)));
    let alone = |name, feature: &str| {
        let lint = format!("clippy --release --locked -p thalweg --no-default-features --features {feature}");
        larger(name, Work::Cargo(words(&format!("{lint} -- -D warnings"))))
    };
    vec![
        larger("rustdoc", Work::Cargo(words("doc --release --locked --workspace --no-deps --document-private-items"))),
        larger("package by lintian", Work::Program("xtask", words("deb"))),
        larger("first build", Work::FirstBuild),
        larger("edge product", Work::Edge),
        alone("hub alone", "hub"),
        alone("object stores alone", "object"),
        alone("SFTP alone", "foreign"),
        alone("WebDAV alone", "dav"),
        alone("etcd alone", "etcd"),
        alone("slow storage alone", "fuse"),
        larger("static", Work::Program("xtask", words("static"))),
        larger("console in a browser", Work::Program("xtask", words("console"))),
        larger("the whole chain", Work::Program("thalweg", words("bench repro facility --out target/ci/facility"))),
        larger("licences", Work::Cargo(words("deny check"))),
        larger("oldest toolchain", Work::OldestToolchain),
        larger("tests without root", Work::WithoutRoot(UNITS)),
        // The tests as they are built have the mutants in them.
        trial(
            "whole museum",
            format!("museum --programs {}", surroundings.logs.join("build-and-clippy.json").display()),
        ),
        trial("all kill points", format!("kill --all --double 1000 --seed {seed}")),
        trial("kills beside growth", format!("kill --case follow-receiver --trials 50 --double 15 --seed {seed}")),
        trial("kills of a follow", format!("kill --case follow-sender --trials 50 --double 15 --seed {seed}")),
        trial("a large copy killed", format!("kill --large --seed {seed}")),
        trial("all errors of storage", format!("errno --all --seed {seed}")),
        trial("many hostile peers", format!("hostile --trials 100 --seed {seed}")),
        trial("many seeds", format!("simulate --first {seed} --seeds 100000")),
        trial("many seeds with buffers", format!("simulate --buffers --first {seed} --seeds 100000")),
        trial("many seeds of several hosts", format!("simulate --hosts --first {seed} --seeds 100000")),
        trial("many seeds of the queue", format!("queue --first {seed} --seeds 1000000")),
        trial("many crash states", format!("crash-states --scenarios 24 --first {seed}")),
        trial("many lying senders", format!("sender --trials 70 --seed {seed}")),
        trial("many enrolments", format!("enrolments --rounds 24 --seed {seed}")),
        trial("many other users here", "locals --rounds 200".to_owned()),
        trial("memory of messages in many sessions", "memory --sessions 16".to_owned()),
        trial("a larger crowd", "crowd --directories 4000000 --keys 1024".to_owned()),
        trial("many path attacks", "paths --rounds 400000".to_owned()),
        trial("many bit flips", format!("flips --flips 100000 --seed {seed}")),
        trial("all networks", format!("network --all --sizes small,medium,large --seed {seed}")),
        trial("all rivals", format!("rivals --trials 2 --seed {seed}")),
        trial("an hour of soak", format!("soak --seconds 3600 --faults-every 60 --seed {seed}")),
        trial("many hosts that fail", format!("crew --trials 100 --pause-max-seconds 90 --seed {seed}")),
        trial("a day in half an hour", format!("day --minutes 30 --jobs 200 --seed {seed}")),
        trial("libFuzzer", "fuzz --seconds 600".to_owned()),
    ]
}

fn quick(name: &'static str, work: Work) -> Step {
    Step { name, work, extent: Extent::Quick, is_beside: false }
}

fn usual(name: &'static str, work: Work) -> Step {
    Step { extent: Extent::Usual, ..quick(name, work) }
}

fn trial(name: &'static str, command: String) -> Step {
    usual(name, Work::Trial(words(&command)))
}

/// A trial that mostly waits, or needs one processor: it runs with its neighbours of the same kind.
fn beside(name: &'static str, command: String) -> Step {
    Step { is_beside: true, ..trial(name, command) }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(extent: Extent) -> Vec<Step> {
        let surroundings = Surroundings {
            workspace: crate::workspace::Workspace::default(),
            extent,
            logs: "logs".into(),
            out: "out".into(),
            product: "product".into(),
            commit: "0123456789".into(),
            seed: 77,
            programs: Default::default(),
            ran: Default::default(),
        };
        steps(&surroundings)
    }

    #[test]
    fn the_product_is_the_last_build_before_the_end_to_end_tests() {
        let steps = named(Extent::Full);
        let position = |name| steps.iter().position(|found| found.name == name).unwrap();
        let builds = ["build and clippy", "edge build", "previous release", "product", "end to end", "package"];
        assert!(builds.windows(2).all(|pair| position(pair[0]) < position(pair[1])));
    }

    #[test]
    fn own_crates_are_tested_with_checks_and_the_product_is_built_without() {
        let package = Package { name: "store".into(), ..Package::default() };
        let settings = checked(&[package]);
        assert!(settings.starts_with("[profile.release.package.store]\nopt-level = 0\n"), "{settings}");
        assert!(settings.contains("overflow-checks = true") && settings.contains("debug-assertions = true"));
        for step in named(Extent::Usual) {
            if let Work::Product(arguments) = step.work {
                assert_eq!(arguments.join(" "), "build --release --locked -p thalweg --features full");
            }
        }
    }

    #[test]
    fn an_extent_has_everything_of_the_smaller_ones() {
        let [quick, usual, full] = [Extent::Quick, Extent::Usual, Extent::Full].map(|extent| named(extent).len());
        assert!(3 < quick && quick < usual && usual < full);
    }

    /// A trial without the seed of the commit draws the same each time.
    #[test]
    fn what_is_drawn_is_drawn_from_the_seed() {
        // Real races, and a coverage-guided search.
        let without = [
            "path attacks",
            "many path attacks",
            "other users here",
            "many other users here",
            "memory of messages",
            "memory of messages in many sessions",
            "crowded endpoint",
            "a larger crowd",
            "museum",
            "whole museum",
            "libFuzzer",
        ];
        for step in named(Extent::Full) {
            if let Work::Trial(arguments) = &step.work {
                let has_seed = arguments.iter().any(|word| word == "77");
                assert_ne!(has_seed, without.contains(&step.name), "{}", step.name);
            }
        }
    }
}
