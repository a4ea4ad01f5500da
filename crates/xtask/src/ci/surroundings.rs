//! What the steps share: how much is run, of which commit, where its files are, and which settings its children have.
//!
//! Not here: which steps there are (`plan`), and running them (`run`).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::previous;
use crate::workspace::Workspace;

/// How much of continuous integration to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// No product, no end-to-end tests; needs neither root nor other programs.
    Quick,
    /// What every commit passes.
    Usual,
    /// That, and what takes hours or tools that few hosts have.
    Full,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub extent: Extent,
    /// Of everything drawn at random; the commit's if not given.
    pub seed: Option<u64>,
    /// Where the counts of trials are kept, below the build's folder if not given.
    pub out: Option<PathBuf>,
}

/// What the steps share.
pub struct Surroundings {
    pub workspace: Workspace,
    pub extent: Extent,
    pub logs: PathBuf,
    pub out: PathBuf,
    pub product: PathBuf,
    pub commit: String,
    pub seed: u64,
    /// Every test program, once they are built.
    pub programs: Mutex<Vec<Program>>,
    /// What ran, and for how many seconds.
    pub ran: Mutex<Vec<(String, f64)>>,
}

/// One program full of tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// `store` for the tests in a library, `store/appeared` for others of its package.
    pub name: String,
    /// Of the package: tests run there.
    pub folder: PathBuf,
    pub path: PathBuf,
}

impl Surroundings {
    pub fn new(options: Options) -> Result<Surroundings> {
        let workspace = Workspace::read()?;
        let logs = workspace.target.join("ci");
        let out =
            options.out.map_or_else(|| Ok(logs.join("trials")), std::path::absolute).context("name the folder")?;
        for folder in [&logs, &out] {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let product = workspace.target.join("release/thalweg");
        let commit = commit(&workspace)?;
        // Another seed for each commit, and the same one for the same commit.
        let drawn = u64::from_str_radix(commit.get(..8).unwrap_or_default(), 16).unwrap_or(1);
        let seed = options.seed.unwrap_or(drawn);
        let (programs, ran) = Default::default();
        Ok(Surroundings { workspace, extent: options.extent, logs, out, product, commit, seed, programs, ran })
    }

    /// The file with the settings of the build that is tested.
    pub fn checked(&self) -> PathBuf {
        self.logs.join("checked.toml")
    }

    /// Settings that every child has, and none of the product that the caller has.
    pub fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("THALWEG_")) {
            command.env_remove(name);
        }
        if command.get_current_dir().is_none() {
            command.current_dir(&self.workspace.root);
        }
        command.env("THALWEG_BIN", &self.product).env("PROPTEST_RNG_SEED", self.seed.to_string());
        // What is tried against it is not left out: a build that failed has failed its own step.
        let previous = previous::program(&self.workspace);
        command.envs(previous.is_file().then_some(("THALWEG_PREVIOUS_BIN", previous)));
        // Of what copies have to do without: seconds where nobody says anything.
        command.envs((self.extent == Extent::Full).then_some(("THALWEG_TEST_OUTAGE_SECONDS", "60")));
        command.envs((self.extent == Extent::Full).then_some(("THALWEG_TEST_BOARD_SEEDS", "100000")));
        // A test that cannot run here fails and says what is missing (`needs`).
        command.envs((self.extent != Extent::Quick).then_some(("CI", "true")));
        command.env("CARGO_TERM_COLOR", "never").env("RUSTDOCFLAGS", "-D warnings").stdin(Stdio::null());
    }
}

/// The commit at hand, or nothing that is one in sources without their history.
fn commit(workspace: &Workspace) -> Result<String> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "rev-parse", "HEAD"]).current_dir(&workspace.root);
    let said = git.output().context("run git")?;
    let commit = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    Ok(if said.status.success() { commit } else { "unknown".to_owned() })
}
