//! The repository as the checks see it: every file git would track, and the packages cargo knows.
//!
//! New files that nobody has added yet are included unless ignored, so that a rule speaks up before a commit does.
//! Read once; the checks are pure functions of this value.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::outline::{self, Function, Tests};
use crate::scan::mask;

#[derive(Debug, Default)]
pub struct Workspace {
    pub root: PathBuf,
    pub target: PathBuf,
    pub files: Vec<Tracked>,
    pub packages: Vec<Package>,
}

#[derive(Debug)]
pub struct Tracked {
    /// Relative to the root, with `/` between components.
    pub path: String,
    pub bytes: u64,
    /// Absent when the content is not text.
    pub text: Option<String>,
    pub rust: Option<Rust>,
}

/// What the checks ask of a Rust file.
#[derive(Debug)]
pub struct Rust {
    /// The text without comments and literals; see `scan::mask`.
    pub code: String,
    pub functions: Vec<Function>,
    pub tests: Tests,
}

#[derive(Clone, Debug, Default)]
pub struct Package {
    pub name: String,
    /// Relative to the root, `crates/model` for example.
    pub folder: String,
    pub dependencies: Vec<Dependency>,
    pub features: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    pub kind: DependencyKind,
    pub is_optional: bool,
    pub is_internal: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DependencyKind {
    Normal,
    Build,
    Dev,
}

/// One breach of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub path: String,
    /// Zero when the rule is about the file as a whole.
    pub line: usize,
    pub message: String,
}

impl Violation {
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

impl Workspace {
    pub fn read() -> Result<Workspace> {
        let root = root()?;
        let metadata = metadata(&root)?;
        let target = metadata["target_directory"].as_str().context("read the target directory from cargo metadata")?;
        let target = PathBuf::from(target);
        let mut files = Vec::new();
        for path in tracked_paths(&root)? {
            files.extend(Tracked::read(&root, path)?);
        }
        mark_test_modules(&mut files);
        let packages = packages(&root, &metadata)?;
        Ok(Workspace { root, target, files, packages })
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref())
    }

    pub fn rust_files(&self) -> impl Iterator<Item = (&Tracked, &Rust)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }
}

impl Tracked {
    /// Reads one file as it is in the working tree; one that was deleted but is still tracked gives nothing.
    fn read(root: &Path, path: String) -> Result<Option<Tracked>> {
        let location = root.join(&path);
        let metadata = match fs::symlink_metadata(&location) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("look at {path}")),
        };
        if metadata.is_dir() {
            return Ok(None);
        }
        let content = if metadata.is_symlink() {
            fs::read_link(&location).map(|link| link.into_os_string().into_encoded_bytes())
        } else {
            fs::read(&location)
        };
        let content = content.with_context(|| format!("read {path}"))?;
        Ok(Some(Tracked::new(path, content)))
    }

    pub fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Tracked {
        let (path, content) = (path.into(), content.into());
        let bytes = content.len() as u64;
        let text = String::from_utf8(content).ok();
        let rust = text.as_deref().filter(|_| path.ends_with(".rs")).map(|text| Rust::new(&path, text));
        Tracked { path, bytes, text, rust }
    }

    /// Whether this is source of a product crate or tool, as opposed to its tests, examples and build script.
    pub fn is_source(&self) -> bool {
        let mut parts = self.path.splitn(4, '/');
        parts.next() == Some("crates") && parts.nth(1) == Some("src")
    }
}

impl Rust {
    fn new(path: &str, text: &str) -> Rust {
        let code = mask(text);
        let functions = outline::functions(&code);
        let mut tests = outline::tests(&code);
        if is_test_path(path) {
            tests.regions.push((1, usize::MAX));
        }
        Rust { code, functions, tests }
    }
}

/// Test folders and files by name; modules declared under `#[cfg(test)]` are found by `mark_test_modules`.
fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches" | "examples"))
}

/// Marks the files of modules that another file declares under `#[cfg(test)]`.
fn mark_test_modules(files: &mut [Tracked]) {
    let mut modules = Vec::new();
    for file in files.iter() {
        let Some(rust) = &file.rust else { continue };
        let stem = file.path.trim_end_matches(".rs");
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let folder = if matches!(name, "lib" | "main" | "mod") { folder } else { stem };
        modules.extend(rust.tests.modules.iter().map(|module| format!("{folder}/{module}")));
    }
    for file in files {
        let Some(rust) = &mut file.rust else { continue };
        let inside = |module: &String| {
            file.path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if modules.iter().any(inside) {
            rust.tests.regions.push((1, usize::MAX));
        }
    }
}

/// Finds the root from where cargo runs this package, or from the current directory.
fn root() -> Result<PathBuf> {
    let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::current_dir().context("find the current directory")?,
    };
    let root = start.ancestors().find(|folder| folder.join("crates/xtask/Cargo.toml").exists());
    root.map(Path::to_owned).with_context(|| format!("find the repository above {}", start.display()))
}

/// The command-line `safe.directory` lets root read a clone that another user made.
fn tracked_paths(root: &Path) -> Result<Vec<String>> {
    let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").current_dir(root).args(["-c", "safe.directory=*"]).args(listing).output();
    let output = output.context("run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = output.stdout.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut paths: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps"];
    let output = Command::new(cargo).current_dir(root).args(arguments).output().context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("parse cargo metadata")
}

fn packages(root: &Path, metadata: &Value) -> Result<Vec<Package>> {
    let entries = metadata["packages"].as_array().context("find packages in cargo metadata")?;
    let names: Vec<&str> = entries.iter().filter_map(|entry| entry["name"].as_str()).collect();
    entries.iter().map(|entry| package(root, &names, entry)).collect()
}

fn package(root: &Path, names: &[&str], entry: &Value) -> Result<Package> {
    let name = entry["name"].as_str().context("find a package's name")?.to_owned();
    let manifest = Path::new(entry["manifest_path"].as_str().context("find a package's manifest")?);
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let folder = folder.with_context(|| format!("place package {name} below the root"))?.display().to_string();
    let dependencies = entry["dependencies"].as_array().context("find a package's dependencies")?;
    let dependencies = dependencies.iter().map(|entry| dependency(names, entry)).collect::<Result<_>>()?;
    let features = entry["features"].as_object().context("find a package's features")?;
    let features = features.iter().map(|(name, parts)| (name.clone(), texts(parts))).collect();
    Ok(Package { name, folder, dependencies, features })
}

fn dependency(names: &[&str], entry: &Value) -> Result<Dependency> {
    let name = entry["name"].as_str().context("find a dependency's name")?;
    let kind = match entry["kind"].as_str() {
        None => DependencyKind::Normal,
        Some("build") => DependencyKind::Build,
        Some("dev") => DependencyKind::Dev,
        Some(other) => bail!("unknown kind of dependency: {other}"),
    };
    let is_internal = !entry["path"].is_null() || names.contains(&name);
    let is_optional = entry["optional"].as_bool().unwrap_or(false);
    Ok(Dependency { name: name.to_owned(), kind, is_optional, is_internal })
}

fn texts(array: &Value) -> Vec<String> {
    array.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_declared_for_tests_are_tests_wherever_they_live() {
        let mut files = vec![
            Tracked::new("crates/a/src/lib.rs", "#[cfg(test)]\nmod pair;\nmod b;"),
            Tracked::new("crates/a/src/pair.rs", "fn f() {}"),
            Tracked::new("crates/a/src/pair/deep.rs", "fn f() {}"),
            Tracked::new("crates/a/src/pairing.rs", "fn f() {}"),
            Tracked::new("crates/a/src/b.rs", "#[cfg(test)]\nmod pair;"),
            Tracked::new("crates/a/src/b/pair.rs", "fn f() {}"),
            Tracked::new("crates/a/tests/c.rs", "fn f() {}"),
        ];
        mark_test_modules(&mut files);
        let found = files.iter().filter(|file| file.rust.as_ref().is_some_and(|rust| rust.tests.contains(usize::MAX)));
        let found: Vec<&str> = found.map(|file| file.path.as_str()).collect();
        let expected =
            ["crates/a/src/pair.rs", "crates/a/src/pair/deep.rs", "crates/a/src/b/pair.rs", "crates/a/tests/c.rs"];
        assert_eq!(found, expected);
    }

    #[test]
    fn metadata_becomes_packages() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "manifest_path": "/r/crates/a/Cargo.toml", "features": { "default": ["x"] }, "dependencies": [
                { "name": "b", "kind": null, "optional": true, "path": "/r/crates/b" },
                { "name": "c", "kind": "dev", "optional": false },
                { "name": "d", "kind": "build", "optional": false } ] } ] });
        let packages = packages(Path::new("/r"), &metadata).unwrap();
        assert_eq!((packages[0].name.as_str(), packages[0].folder.as_str()), ("a", "crates/a"));
        assert_eq!(packages[0].features["default"], ["x"]);
        let kinds: Vec<_> = packages[0].dependencies.iter().map(|d| (d.kind, d.is_internal, d.is_optional)).collect();
        let expected = [
            (DependencyKind::Normal, true, true),
            (DependencyKind::Dev, false, false),
            (DependencyKind::Build, false, false),
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn only_files_below_src_of_a_crate_are_source() {
        let is_source = |path: &str| Tracked::new(path, "").is_source();
        assert!(is_source("crates/a/src/lib.rs") && is_source("crates/a/src/b/c.rs"));
        assert!(!is_source("crates/a/tests/c.rs") && !is_source("crates/a/build.rs") && !is_source("docs/src/a.rs"));
    }
}
