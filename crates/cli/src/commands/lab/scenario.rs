//! Which laboratory is meant, and what can be made of its description alone: a list, a picture, scripts.

use super::error::of_lab;
use crate::exit::{Result, error, of_file, of_written, usage};
use crate::output::{line, shown};
use lab::scenario::preset::PRESETS;
use lab::scenario::{HostSettings, Scenario};
use model::Exit;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A preset or a file, and what is to be different.
#[derive(clap::Args, Debug)]
pub struct Wanted {
    /// A preset (`thalweg lab presets` lists them) or a TOML file
    #[arg(value_name = "PRESET|FILE")]
    pub scenario: OsString,
    /// The name of the laboratory [default: that of the preset or file]
    #[arg(long, env = "THALWEG_NAME")]
    name: Option<String>,
    /// The same seed loses the same packets
    #[arg(long, value_name = "N", env = "THALWEG_SEED")]
    seed: Option<u64>,
    /// Congestion control of connections that do not choose their own: cubic, bbr, reno
    #[arg(long, value_name = "NAME", env = "THALWEG_CONGESTION_CONTROL")]
    congestion_control: Option<String>,
    /// Socket limits of the hosts: stock (as distributions ship them) or tuned
    #[arg(long, value_name = "SETTINGS", value_parser = host_settings, env = "THALWEG_HOST_SETTINGS")]
    host_settings: Option<HostSettings>,
    /// What emulates the links: auto, netem, nfqueue, tun
    #[arg(long, value_name = "NAME", env = "THALWEG_BACKEND")]
    backend: Option<String>,
    /// Changes to a link, such as --set wan.rtt=50ms --set wan.forward.loss=1%
    #[arg(long = "set", value_name = "LINK.KEY=VALUE", env = "THALWEG_SET")]
    set: Vec<String>,
}

/// List the presets
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab presets")]
pub struct Presets {}

/// Draw a laboratory as an SVG picture
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab draw continent -o continent.svg")]
pub struct Draw {
    #[command(flatten)]
    wanted: Wanted,
    /// Where to write the picture [default: standard output]
    #[arg(short, long, value_name = "FILE", env = "THALWEG_OUTPUT")]
    output: Option<PathBuf>,
}

/// Write scripts that build the same network on real machines
///
/// Two latency hosts per link stand between the sites and run the kernel's netem.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg lab emit continent -o scripts")]
pub struct Emit {
    #[command(flatten)]
    wanted: Wanted,
    /// The directory for the scripts; it must not exist
    #[arg(short, long, value_name = "DIR", env = "THALWEG_OUTPUT")]
    output: PathBuf,
}

impl Wanted {
    #[cfg(feature = "bench")]
    pub fn new(scenario: &std::ffi::OsStr, set: Vec<String>) -> Wanted {
        let (name, seed, congestion_control, host_settings, backend) = (None, None, None, None, None);
        Wanted { scenario: scenario.to_owned(), name, seed, congestion_control, host_settings, backend, set }
    }

    pub fn read(&self) -> Result<Scenario> {
        let mut scenario = named(&self.scenario)?;
        scenario.name = self.name.clone().unwrap_or(scenario.name);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        scenario.host_settings = self.host_settings.unwrap_or(scenario.host_settings);
        if let Some(name) = &self.congestion_control {
            scenario.congestion_control = name.clone();
        }
        if let Some(name) = &self.backend {
            scenario.backend = backend(name)?;
        }
        for change in &self.set {
            self.apply(&mut scenario, change)?;
        }
        // Whether it fits the memory is asked when it is built.
        scenario.check(u64::MAX).map_err(|e| of_lab(e.into()))?;
        Ok(scenario)
    }

    fn apply(&self, scenario: &mut Scenario, text: &str) -> Result<()> {
        let Some((name, word)) = text.split_once('.') else {
            return Err(usage(format!("{text:?} does not name a link"), "write LINK.KEY=VALUE, such as wan.rtt=50ms"));
        };
        let changes = lab::scenario::parse_changes(&[word]).map_err(|e| of_lab(e.into()))?;
        let names: Vec<_> = scenario.links.iter().map(|link| link.name.clone()).collect();
        let Some(link) = scenario.links.iter_mut().find(|link| link.name == name) else {
            return Err(usage(format!("there is no link {name:?}"), format!("its links are {}", names.join(", "))));
        };
        for (only, change) in changes {
            for (index, direction) in link.directions.iter_mut().enumerate() {
                if only.is_none_or(|only| only == index) {
                    *direction = direction.with(&change);
                }
            }
        }
        Ok(())
    }
}

pub fn presets(_: &Presets) -> Result<Exit> {
    let width = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    for preset in PRESETS {
        line(&format!("{:width$}  {}", preset.name, preset.sentence));
    }
    Ok(Exit::Done)
}

pub fn draw(args: &Draw) -> Result<Exit> {
    let picture = args.wanted.read()?.to_svg();
    match &args.output {
        Some(path) => fs::write(path, picture).map_err(|e| of_written("write", path, &e))?,
        None => drop(line(&picture)),
    }
    Ok(Exit::Done)
}

pub fn emit(args: &Emit) -> Result<Exit> {
    let files = args.wanted.read()?.emit();
    fs::create_dir(&args.output).map_err(|e| of_written("create", &args.output, &e))?;
    for (name, text) in files {
        let path = args.output.join(&name);
        write_script(&path, &text).map_err(|e| of_written("write", &path, &e))?;
        line(&shown(&path));
    }
    Ok(Exit::Done)
}

fn write_script(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text)?;
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// A preset if there is one of that name, else a file.
fn named(wanted: &OsString) -> Result<Scenario> {
    if let Some(scenario) = wanted.to_str().and_then(Scenario::preset) {
        return Ok(scenario);
    }
    let path = Path::new(wanted);
    let text = read_bounded(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound if path.extension().is_none() && path.components().count() == 1 => error(
            Exit::Usage,
            format!("{} is neither a preset nor a file", shown(path)),
            "`thalweg lab presets` lists the presets",
        ),
        _ => of_file("read", path, &e),
    })?;
    let from_file = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut scenario = Scenario::from_toml(&text).map_err(|e| of_lab(e.into()))?;
    if scenario.name.is_empty() {
        // A file may be called more than a laboratory may.
        let is_allowed = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let name: String =
            from_file.unwrap_or_default().replace(['_', ' ', '.'], "-").chars().filter(is_allowed).collect();
        scenario.name = if name.is_empty() { "lab".into() } else { name };
    }
    Ok(scenario)
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let limit = lab::scenario::file::FILE_BYTES_MAX as u64;
    fs::File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        return Err(std::io::Error::other("it is too long for a scenario"));
    }
    Ok(text)
}

fn backend(name: &str) -> Result<Option<lab::scenario::Backend>> {
    if name == "auto" {
        return Ok(None);
    }
    let known = lab::backend::BACKENDS.into_iter().find(|backend| backend.name() == name);
    known.map(Some).ok_or_else(|| usage(format!("there is no back end {name:?}"), "use auto, netem, nfqueue or tun"))
}

fn host_settings(text: &str) -> Result<HostSettings, String> {
    match text {
        "stock" => Ok(HostSettings::Stock),
        "tuned" => Ok(HostSettings::Tuned),
        _ => Err("use stock or tuned".into()),
    }
}
