//! The shape of the house: which crate may know which, and what a crate must not know at all.
//!
//! ARCHITECTURE.md states these as invariants; this is where they are held. Arrows and external absences are read from
//! cargo's metadata, the others from the code with comments and literals taken away.

use std::collections::BTreeSet;

use crate::outline;
use crate::scan::{line_at, occurrences};
use crate::workspace::{DependencyKind, Package, Rust, Tracked, Violation, Workspace};

const CLI: &str = "thalweg";

/// Package, and the packages of this workspace it may depend on. Any other arrow is a violation.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("os", &[]),
    ("store", &["model", "os"]),
    ("web", &[]),
    ("object", &["model", "store", "web"]),
    ("foreign", &["model", "store"]),
    ("dav", &["model", "store", "web"]),
    ("wire", &["model"]),
    ("net", &["model", "wire"]),
    ("plan", &["model"]),
    ("ledger", &["model"]),
    ("mover", &["model", "os", "store", "wire", "net", "plan", "ledger"]),
    ("transfer", &["model", "store", "net", "plan", "mover"]),
    ("cluster", &["model"]),
    ("etcd", &["model", "cluster", "web"]),
    ("daemon", &["model", "cluster", "mover", "transfer", "ledger", "net", "store", "wire", "plan"]),
    ("ssh", &["model", "mover", "transfer", "net", "store", "wire", "daemon"]),
    ("queue", &["model"]),
    ("hub", &["model", "queue", "daemon", "transfer", "net", "web"]),
    ("api", &["model", "hub", "net"]),
    ("emulator", &[]),
    ("lab", &["model", "emulator"]),
    ("content", &[]),
    ("bench", &["model", "plan", "emulator", "lab", "content", "store", "net"]),
    ("audit", &["model", "net"]),
    (
        CLI,
        &[
            "model", "audit", "plan", "mover", "transfer", "daemon", "ssh", "lab", "bench", "net", "store", "object",
            "foreign", "dav", "hub", "api", "web", "cluster", "etcd",
        ],
    ),
    ("needs", &[]),
    ("fakes", &["model"]),
    ("conformance", &["model", "cluster", "store"]),
    (
        "trial",
        &[
            "model",
            "os",
            "store",
            "object",
            "foreign",
            "dav",
            "web",
            "wire",
            "net",
            "ledger",
            "mover",
            "cluster",
            "daemon",
            "queue",
            "emulator",
            "lab",
            "conformance",
        ],
    ),
    ("xtask", &[]),
];

/// Nothing but the product's own tests may reach up to these, not even from tests.
const TOPS: &[&str] = &["daemon", "ssh", "hub", "api", CLI];

/// Tools that an edge build leaves out.
const TOOLS: &[&str] = &["emulator", "lab", "bench"];

/// A crate, packages from outside it must not depend on, and the reason.
const EXTERNAL_ABSENCES: &[(&str, &[&str], &str)] = &[
    ("wire", SYSTEM, "the protocol is bytes and time in, actions out"),
    ("plan", SYSTEM, "planning is a pure function"),
    ("model", SYSTEM, "the words of the project are pure values"),
    ("cluster", SYSTEM, "who works on what is events and time in, answers out"),
    ("queue", SYSTEM, "who is next is events and time in, actions out"),
    ("hub", HTTP, "the hub is asked through its handle"),
    ("hub", TERMINAL, "the hub is shown by those who ask it"),
    ("mover", HTTP, "the data path knows no HTTP"),
    ("mover", TERMINAL, "the data path knows no terminal"),
    ("daemon", RUNTIME, "the asynchronous runtime is the interface's alone"),
    ("hub", RUNTIME, "the asynchronous runtime is the interface's alone"),
    ("thalweg", RUNTIME, "the asynchronous runtime is the interface's alone"),
    ("transfer", HTTP, "a transfer is a value that others carry about"),
    ("transfer", TERMINAL, "a transfer is shown by those who start it"),
];
const SYSTEM: &[&str] = &["tokio", "async-std", "mio", "rustix", "nix", "socket2", "libc", "io-uring"];
const RUNTIME: &[&str] = &["tokio"];
const HTTP: &[&str] = &[
    "actix-web",
    "attohttpc",
    "axum",
    "curl",
    "h2",
    "http",
    "hyper",
    "isahc",
    "minreq",
    "reqwest",
    "tiny_http",
    "tonic",
    "ureq",
    "warp",
];
const TERMINAL: &[&str] = &["clap", "console", "crossterm", "indicatif", "ratatui", "termcolor", "termion"];

/// A crate, what its sources must not mention, and the reason. `elapsed` reads the clock as `now` does.
const MENTION_ABSENCES: &[(&str, &[&str], &str)] = &[
    ("wire", &["std::net", "std::os::unix::net"], "the protocol has no sockets"),
    ("wire", CLOCK, "time enters the protocol as a value"),
    ("plan", INPUT_OUTPUT, "planning does no I/O"),
    ("plan", CLOCK, "planning reads no clock"),
    ("cluster", INPUT_OUTPUT, "the board does no I/O"),
    ("cluster", CLOCK, "time enters the board as a value"),
    ("queue", INPUT_OUTPUT, "the queue does no I/O"),
    ("queue", CLOCK, "time enters the queue as a value"),
    ("model", INPUT_OUTPUT, "pure values do no I/O"),
    ("model", CLOCK, "pure values read no clock"),
    ("transfer", SURROUNDINGS, "all that a transfer needs comes in by its means"),
];
const SURROUNDINGS: &[&str] = &["std::env", "std::process"];
/// The same for the product alone: unit tests set up what they like.
const PRODUCT_MENTION_ABSENCES: &[(&str, &[&str], &str)] = &[(
    "mover",
    &["store::posix", "BorrowedFd", "OwnedFd"],
    "descriptors and storage engines stay behind the traits of store",
)];
const CLOCK: &[&str] = &["Instant::now", "SystemTime", ".elapsed()"];
const INPUT_OUTPUT: &[&str] = &["std::fs", "std::net", "std::process", "std::os::unix::net"];

const PRINTING: &[&str] = &["println!", "eprintln!", "print!", "eprint!"];
const MAY_PRINT: &[&str] = &["crates/cli/", "crates/needs/", "crates/trial/", "crates/xtask/"];
/// Tests, and what measures on a host of its own.
const MAY_PANIC_WITHOUT_THREADS: &[&str] = &[
    "crates/bench/",
    "crates/conformance/",
    "crates/emulator/",
    "crates/fakes/",
    "crates/lab/",
    "crates/needs/",
    "crates/trial/",
    "crates/xtask/",
];
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/model/src/crc64.rs",
    "crates/net/",
    "crates/store/src/posix",
    "crates/emulator/src/sys",
    "crates/lab/src/sys",
    "crates/trial/src/sys",
    "crates/wire/tests/memory",
];

/// Every dependency between packages of this workspace is in the table.
pub fn arrows(workspace: &Workspace) -> Vec<Violation> {
    workspace.packages.iter().flat_map(package_arrows).collect()
}

/// The laboratory and the benchmarks are optional in the product, behind default features.
pub fn tools_are_optional(workspace: &Workspace) -> Vec<Violation> {
    let Some(cli) = workspace.packages.iter().find(|package| package.name == CLI) else {
        return vec![Violation::new("Cargo.toml", 0, format!("no package {CLI}"))];
    };
    let enabled = default_features(cli);
    let mut violations = Vec::new();
    for tool in TOOLS {
        let found = cli.dependencies.iter().find(|d| d.name == *tool && d.kind == DependencyKind::Normal);
        let problem = match found {
            Some(dependency) if !dependency.is_optional => "must be an optional dependency",
            Some(_) if !enabled.contains(*tool) => "must be enabled by the default features",
            _ => continue,
        };
        violations.push(Violation::new(&manifest(cli), 0, format!("{tool} {problem}")));
    }
    violations
}

/// Packages from outside stay out of the crates that must not know them.
pub fn external_absences(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, banned, reason) in EXTERNAL_ABSENCES {
        for package in workspace.packages.iter().filter(|package| package.name == *name) {
            let linked = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Dev);
            let found = linked.filter(|dependency| banned.contains(&dependency.name.as_str()));
            violations.extend(found.map(|dependency| {
                Violation::new(
                    &manifest(package),
                    0,
                    format!("{name} must not depend on {}: {reason}", dependency.name),
                )
            }));
        }
    }
    violations
}

/// Sockets, clocks and files stay out of the crates that must not know them, unit tests included.
pub fn mention_absences(workspace: &Workspace) -> Vec<Violation> {
    mentions(workspace, MENTION_ABSENCES)
}

/// Descriptors and storage engines stay out of the product's data path.
pub fn product_mention_absences(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = mentions(workspace, PRODUCT_MENTION_ABSENCES);
    violations.retain(|violation| {
        let is_test =
            |(file, rust): (&Tracked, &Rust)| file.path == violation.path && rust.tests.contains(violation.line);
        !workspace.rust_files().any(is_test)
    });
    violations
}

fn mentions(workspace: &Workspace, absences: &[(&str, &[&str], &str)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, banned, reason) in absences {
        let folder = format!("crates/{name}/src/");
        for (file, rust) in workspace.rust_files().filter(|(file, _)| file.path.starts_with(&folder)) {
            let imports = outline::imports(&rust.code);
            for pattern in *banned {
                let written = occurrences(&rust.code, pattern).map(|at| line_at(&rust.code, at));
                let imported = imports.iter().filter(|(_, path)| is_below(path, pattern)).map(|(line, _)| *line);
                let lines: BTreeSet<usize> = written.chain(imported).collect();
                let message = format!("{name} must not mention {pattern}: {reason}");
                violations.extend(lines.into_iter().map(|line| Violation::new(&file.path, line, &message)));
            }
        }
    }
    violations
}

/// Only the command line prints; libraries return values and typed errors.
pub fn printing(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, rust) in workspace.rust_files().filter(|(file, _)| file.is_source()) {
        if MAY_PRINT.iter().any(|prefix| file.path.starts_with(prefix)) {
            continue;
        }
        for macro_name in PRINTING {
            let lines = occurrences(&rust.code, macro_name).map(|at| line_at(&rust.code, at));
            let lines = lines.filter(|&line| !rust.tests.contains(line));
            violations.extend(lines.map(|line| Violation::new(&file.path, line, format!("{macro_name} outside cli"))));
        }
    }
    violations
}

/// A thread is asked for by what answers when there is none: `spawn` of the standard library panics, and a host's limit on
/// processes is no bug of ours.
pub fn threads(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, rust) in workspace.rust_files().filter(|(file, _)| file.is_source()) {
        if MAY_PANIC_WITHOUT_THREADS.iter().any(|prefix| file.path.starts_with(prefix)) {
            continue;
        }
        for call in ["thread::spawn(", "scope.spawn("] {
            let found = occurrences(&rust.code, call).filter(|at| !rust.code[..*at].ends_with("os::"));
            let lines = found.map(|at| line_at(&rust.code, at)).filter(|&line| !rust.tests.contains(line));
            let message = format!("{call}) panics where the system gives no thread; use std::thread::Builder");
            violations.extend(lines.map(|line| Violation::new(&file.path, line, &message)));
        }
    }
    violations
}

/// The word `unsafe` stands only where system calls are made.
pub fn unsafe_code(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, rust) in workspace.rust_files() {
        if MAY_BE_UNSAFE.iter().any(|prefix| file.path.starts_with(prefix)) {
            continue;
        }
        let lines = occurrences(&rust.code, "unsafe").map(|at| line_at(&rust.code, at));
        let message = format!("unsafe code belongs in {}", MAY_BE_UNSAFE.join(", "));
        violations.extend(lines.map(|line| Violation::new(&file.path, line, &message)));
    }
    violations
}

fn package_arrows(package: &Package) -> Vec<Violation> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        return vec![Violation::new(&manifest(package), 0, format!("package {} has no row of arrows", package.name))];
    };
    let internal = package.dependencies.iter().filter(|dependency| dependency.is_internal);
    let broken = internal.filter(|dependency| match dependency.kind {
        DependencyKind::Dev => package.name != CLI && TOPS.contains(&dependency.name.as_str()),
        DependencyKind::Normal | DependencyKind::Build => !allowed.contains(&dependency.name.as_str()),
    });
    let name = &package.name;
    broken.map(|d| Violation::new(&manifest(package), 0, format!("{name} must not depend on {}", d.name))).collect()
}

/// The dependencies that the default features switch on, by package name.
fn default_features(package: &Package) -> BTreeSet<String> {
    let mut enabled = BTreeSet::new();
    let mut open = vec!["default".to_owned()];
    while let Some(feature) = open.pop() {
        let name = feature.strip_prefix("dep:").unwrap_or(&feature);
        let name = name.split_once('/').map_or(name, |(dependency, _)| dependency).trim_end_matches('?');
        if enabled.insert(name.to_owned()) {
            open.extend(package.features.get(&feature).into_iter().flatten().cloned());
        }
    }
    enabled
}

fn manifest(package: &Package) -> String {
    format!("{}/Cargo.toml", package.folder)
}

fn is_below(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, dependencies: &[(&str, DependencyKind)]) -> Package {
        let is_internal = |name: &str| ARROWS.iter().any(|(row, _)| *row == name);
        let dependency = |&(name, kind): &(&str, DependencyKind)| Dependency {
            name: name.to_owned(),
            kind,
            is_optional: false,
            is_internal: is_internal(name),
        };
        let dependencies = dependencies.iter().map(dependency).collect();
        Package { name: name.to_owned(), folder: format!("crates/{name}"), dependencies, ..Package::default() }
    }

    fn with_package(package: Package) -> Workspace {
        Workspace { packages: vec![package], ..Workspace::default() }
    }

    fn with_file(path: &str, text: &str) -> Workspace {
        Workspace { files: vec![Tracked::new(path, text)], ..Workspace::default() }
    }

    fn lines(violations: &[Violation]) -> Vec<usize> {
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn an_arrow_outside_the_table_is_found() {
        use DependencyKind::{Build, Dev, Normal};
        let count = |name, dependencies: &[_]| arrows(&with_package(package(name, dependencies))).len();
        assert_eq!(count("mover", &[("store", Normal), ("anyhow", Normal), ("lab", Dev)]), 0);
        assert_eq!(count("store", &[("net", Normal), ("wire", Build), ("ledger", Dev)]), 2);
        assert_eq!(count("net", &[("daemon", Dev)]), 1);
        assert_eq!(count("transfer", &[("daemon", Dev)]), 1);
        assert_eq!(count("transfer", &[("daemon", Normal), ("lab", Normal)]), 2);
        assert_eq!(count(CLI, &[("daemon", Dev), ("wire", Normal)]), 1);
        assert_eq!(count("newcomer", &[]), 1);
    }

    #[test]
    fn tools_must_be_optional_and_on_by_default() {
        let mut cli = package(CLI, &[("lab", DependencyKind::Normal), ("bench", DependencyKind::Normal)]);
        assert_eq!(tools_are_optional(&with_package(cli.clone())).len(), 2);
        cli.dependencies.iter_mut().for_each(|dependency| dependency.is_optional = true);
        assert_eq!(tools_are_optional(&with_package(cli.clone())).len(), 2);
        cli.features.insert("default".into(), vec!["tools".into()]);
        cli.features.insert("tools".into(), vec!["dep:lab".into(), "bench/x".into()]);
        assert_eq!(tools_are_optional(&with_package(cli)), []);
    }

    #[test]
    fn banned_packages_are_found_except_in_tests() {
        let wire = package("wire", &[("tokio", DependencyKind::Normal), ("libc", DependencyKind::Dev)]);
        assert_eq!(external_absences(&with_package(wire)).len(), 1);
        let mover = package("mover", &[("indicatif", DependencyKind::Normal), ("hyper", DependencyKind::Build)]);
        assert_eq!(external_absences(&with_package(mover)).len(), 2);
    }

    #[test]
    fn banned_mentions_are_found_in_code_and_grouped_imports() {
        let text = "//! No std::net here.\nuse std::{io, net::TcpStream};\nfn f() { Instant::now(); }\n\"SystemTime\";";
        assert_eq!(lines(&mention_absences(&with_file("crates/wire/src/a.rs", text))), [2, 3]);
        assert_eq!(mention_absences(&with_file("crates/net/src/a.rs", text)), []);
        assert_eq!(lines(&mention_absences(&with_file("crates/plan/src/a.rs", "std::fs::read(x);"))), [1]);
    }

    #[test]
    fn storage_behind_its_traits_is_found_outside_tests() {
        let text = "use store::{Sink, posix::PosixSink};\nfn f(file: BorrowedFd<'_>) {}\n#[cfg(test)]\nmod tests { use store::posix; }";
        let found = |path| lines(&product_mention_absences(&with_file(path, text)));
        assert_eq!(found("crates/mover/src/files/a.rs"), [1, 2]);
        for elsewhere in ["crates/mover/tests/a.rs", "crates/daemon/src/a.rs"] {
            assert!(found(elsewhere).is_empty(), "{elsewhere}");
        }
    }

    #[test]
    fn printing_is_found_outside_cli_and_tests() {
        let text = "fn f() { println!(); }\n#[cfg(test)]\nmod tests { fn f() { eprintln!(); } }";
        assert_eq!(lines(&printing(&with_file("crates/net/src/a.rs", text))), [1]);
        assert_eq!(printing(&with_file("crates/cli/src/a.rs", text)), []);
        assert_eq!(printing(&with_file("crates/net/build.rs", text)), []);
    }

    #[test]
    fn threads_that_panic_are_found_outside_tests() {
        let text = "fn f() { std::thread::spawn(g); os::thread::spawn(g); scope.spawn(g); }\n#[cfg(test)]\nmod tests { fn f() { scope.spawn(g); } }";
        assert_eq!(lines(&threads(&with_file("crates/net/src/a.rs", text))), [1, 1]);
        assert_eq!(threads(&with_file("crates/lab/src/a.rs", text)), []);
    }

    #[test]
    fn unsafe_code_is_found_outside_its_homes() {
        let text = "// unsafe\n#![deny(unsafe_op_in_unsafe_fn)]\nfn f() { unsafe { g() } }";
        assert_eq!(lines(&unsafe_code(&with_file("crates/store/src/memory.rs", text))), [3]);
        assert_eq!(lines(&unsafe_code(&with_file("crates/mover/tests/a.rs", text))), [3]);
        for home in ["crates/net/src/a.rs", "crates/store/src/posix/a.rs", "crates/lab/src/sys.rs"] {
            assert_eq!(unsafe_code(&with_file(home, text)), []);
        }
    }
}
