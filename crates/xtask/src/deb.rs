//! `deb`: the Debian package, from `packaging/` and the product, with dpkg-deb alone.
//!
//! Invariant: the same commit and the same toolchain give the same bytes: owners are root, times are the commit's, names
//! are in order. The maintainer named in it is who builds it (DEBFULLNAME and DEBEMAIL, as Debian's own tools have it).

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::Workspace;

/// Of each user who wants one: `systemctl --user enable --now thalweg-hub`.
const HUB_SERVICE: &str = "usr/lib/systemd/user/thalweg-hub.service";
const SERVICE: &str = "usr/lib/systemd/system/thalweg.service";
const SYSUSERS: &str = "usr/lib/sysusers.d/thalweg.conf";
const SETTINGS: &str = "etc/thalweg/endpoint.toml";
const DOCUMENTS: &str = "usr/share/doc/thalweg";
const MANUALS: &str = "usr/share/man/man1";
const MAIL: &str = "DEBEMAIL";
/// Lintian's objections to the address that stands where nobody has given one.
const OF_THE_ADDRESS: &str = "bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact";
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
const SHELLS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/thalweg"),
    ("zsh", "usr/share/zsh/vendor-completions/_thalweg"),
    ("fish", "usr/share/fish/vendor_completions.d/thalweg.fish"),
];

/// What the package is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be handed out: compiled with the profile `dist`, and judged by lintian.
    Release,
    /// To be tried only: with the program of `cargo build --release`, which is there already.
    Trial,
}

/// Builds the package and returns its file.
pub fn build(purpose: Purpose) -> Result<PathBuf> {
    let workspace = Workspace::read()?;
    let profile = if purpose == Purpose::Release { "dist" } else { "release" };
    let arguments = ["build", "--profile", profile, "--locked", "-p", "thalweg", "--features", "full"];
    run(Command::new("cargo").args(arguments).current_dir(&workspace.root))?;
    let package = Package::new(&workspace, profile)?;
    package.lay_out()?;
    package.describe()?;
    let file = package.pack()?;
    if purpose == Purpose::Release {
        check(&file)?;
    }
    println!("{} ({} KiB)", file.display(), fs::metadata(&file)?.len() / 1024);
    Ok(file)
}

struct Package {
    /// The repository.
    home: PathBuf,
    /// What the package installs, as it will lie below `/`.
    tree: PathBuf,
    out: PathBuf,
    product: PathBuf,
    version: String,
    architecture: String,
    /// Of the commit, in seconds since 1970.
    time: String,
}

impl Package {
    fn new(workspace: &Workspace, profile: &str) -> Result<Package> {
        let out = workspace.target.join("deb");
        let tree = out.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree).context("remove the last tree")?;
        }
        fs::create_dir_all(&tree).context("make the tree")?;
        let product = workspace.target.join(profile).join("thalweg");
        let said = output(Command::new(&product).arg("--version"))?;
        let version = said.split_whitespace().nth(1).context("a version")?.to_owned();
        let asked = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root));
        // Sources without their history have no time.
        let time = asked.map_or_else(|_| "0".to_owned(), |time| time.trim().to_owned());
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
        Ok(Package { home: workspace.root.clone(), tree, out, product, version, architecture, time })
    }

    fn lay_out(&self) -> Result<()> {
        let packaging = self.home.join("packaging");
        self.copy(&self.product, "usr/bin/thalweg", 0o755)?;
        run(Command::new("strip").arg("--strip-unneeded").arg(self.tree.join("usr/bin/thalweg")))?;
        self.copy(&packaging.join("thalweg.service"), SERVICE, 0o644)?;
        self.copy(&packaging.join("thalweg-hub.service"), HUB_SERVICE, 0o644)?;
        self.copy(&packaging.join("thalweg.sysusers"), SYSUSERS, 0o644)?;
        self.copy(&packaging.join("endpoint.toml"), SETTINGS, 0o644)?;
        self.copy(&packaging.join("debian/copyright"), &format!("{DOCUMENTS}/copyright"), 0o644)?;
        self.write(&format!("{DOCUMENTS}/changelog.gz"), &gzip(self.changelog()?.as_bytes())?, 0o644)?;
        for entry in fs::read_dir(self.home.join("docs"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "md") {
                let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
                self.copy(&path, &format!("{DOCUMENTS}/{name}"), 0o644)?;
            }
        }
        let pages = self.out.join("man");
        run(self.program().arg("man").arg("--out").arg(&pages))?;
        for entry in fs::read_dir(&pages)? {
            let path = entry?.path();
            let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
            self.write(&format!("{MANUALS}/{name}.gz"), &gzip(&fs::read(&path)?)?, 0o644)?;
        }
        for (shell, place) in SHELLS {
            self.write(place, output(self.program().args(["completions", shell]))?.as_bytes(), 0o644)?;
        }
        Ok(())
    }

    /// The product without what the one who builds has set for it.
    fn program(&self) -> Command {
        let mut program = Command::new(&self.product);
        program.env("THALWEG_CONFIG", "/dev/null");
        program
    }

    /// Debian's form of a change log, with the one entry of this version.
    fn changelog(&self) -> Result<String> {
        let date = output(Command::new("date").args(["-u", "-R", "-d", &format!("@{}", self.time)]))?;
        let (version, maintainer) = (&self.version, maintainer());
        Ok(format!(
            "thalweg ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n -- {maintainer}  {date}"
        ))
    }

    /// `DEBIAN/`: control file, settings that upgrades keep, checksums, scripts.
    fn describe(&self) -> Result<()> {
        let files = self.files()?;
        let bytes: u64 =
            files.iter().map(|file| fs::metadata(self.tree.join(file)).map_or(0, |found| found.len())).sum();
        let template = fs::read_to_string(self.home.join("packaging/debian/control"))?;
        let libraries = libraries(&self.tree.join("usr/bin/thalweg"))?;
        let control = template
            .replace("@VERSION@", &self.version)
            .replace("@ARCHITECTURE@", &self.architecture)
            .replace("@MAINTAINER@", &maintainer())
            .replace("@INSTALLED_KIB@", &bytes.div_ceil(1024).to_string())
            .replace("@LIBRARIES@", &libraries);
        ensure!(
            !control.contains('@') || control.matches('@').count() == 1,
            "a place in the control file is left open"
        );
        let sums: Result<String> =
            files.iter().filter(|file| !file.starts_with("etc/")).map(|file| self.sum(file)).collect();
        self.write("DEBIAN/control", control.as_bytes(), 0o644)?;
        self.write("DEBIAN/conffiles", format!("/{SETTINGS}\n").as_bytes(), 0o644)?;
        self.write("DEBIAN/md5sums", sums?.as_bytes(), 0o644)?;
        for script in SCRIPTS {
            self.copy(&self.home.join("packaging/debian").join(script), &format!("DEBIAN/{script}"), 0o755)?;
        }
        Ok(())
    }

    fn pack(&self) -> Result<PathBuf> {
        let file = self.out.join(format!("thalweg_{}_{}.deb", self.version, self.architecture));
        let mut pack = Command::new("dpkg-deb");
        pack.args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&self.tree)
            .arg(&file)
            .env("SOURCE_DATE_EPOCH", &self.time);
        output(&mut pack)?;
        Ok(file)
    }

    /// Every file below the tree, in order.
    fn files(&self) -> Result<Vec<String>> {
        let (mut found, mut open) = (Vec::new(), vec![self.tree.clone()]);
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.push(path.strip_prefix(&self.tree)?.to_string_lossy().into_owned());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn sum(&self, file: &str) -> Result<String> {
        output(Command::new("md5sum").arg(file).current_dir(&self.tree))
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
        self.write(to, &content, mode)
    }

    fn write(&self, to: &str, content: &[u8], mode: u32) -> Result<()> {
        let path = self.tree.join(to);
        let parent = path.parent().context("a directory")?;
        fs::create_dir_all(parent)?;
        // Whatever the umask is: the directories of a package are everybody's to read.
        for made in parent.ancestors().take_while(|at| at.starts_with(&self.tree)) {
            fs::set_permissions(made, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
    }
}

/// Who builds it.
fn maintainer() -> String {
    let variable = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!("{} <{}>", variable("DEBFULLNAME", "Thalweg packager"), variable(MAIL, "root@localhost"))
}

/// What the program needs of the C library, from the versions of the symbols it takes.
fn libraries(program: &Path) -> Result<String> {
    let versions = output(Command::new("readelf").args(["--version-info", "--wide"]).arg(program))?;
    let needed = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(program))?;
    let mut libraries = vec![format!("libc6 (>= {})", newest_glibc(&versions).context("a version of the C library")?)];
    if needed.contains("libgcc_s.so.1") {
        libraries.push("libgcc-s1 (>= 4.2)".to_owned());
    }
    Ok(libraries.join(", "))
}

fn newest_glibc(versions: &str) -> Option<String> {
    let numbers = versions.split("GLIBC_").skip(1).filter_map(|rest| {
        let text: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        Some((parts?, text))
    });
    numbers.max().map(|(_, text)| text)
}

/// Lintian, where it is installed: its word is what makes a package acceptable. Under CI it has to be.
fn check(file: &Path) -> Result<()> {
    let found = Command::new("lintian").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = found {
        ensure!(std::env::var_os("CI").is_none(), "lintian is not installed: {error}");
        println!("lintian is not installed: the package is not checked by it");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning"]).arg(file);
    if std::env::var_os(MAIL).is_none() {
        println!("{MAIL} is not set: lintian is not asked about the maintainer's address");
        lintian.args(["--suppress-tags", OF_THE_ADDRESS]);
    }
    run(&mut lintian)?;
    println!("lintian: no errors, no warnings");
    Ok(())
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new("gzip").args(["-9n"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    let content = content.to_vec();
    let feed = std::thread::spawn(move || input.write_all(&content));
    let done = child.wait_with_output()?;
    ensure!(done.status.success() && feed.join().is_ok_and(|fed| fed.is_ok()), "gzip failed");
    Ok(done.stdout)
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    if !done.status.success() {
        bail!("{command:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_is_by_number_and_not_by_letter() {
        let text = "0x01 GLIBC_2.9 (5)\n Name: GLIBC_2.34  Flags\nGLIBC_2.2.5\nGLIBC_PRIVATE";
        assert_eq!(newest_glibc(text).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("nothing"), None);
    }

    #[test]
    fn compressed_files_carry_no_time() {
        assert_eq!(gzip(b"text").unwrap(), gzip(b"text").unwrap());
        assert_eq!(&gzip(b"text").unwrap()[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]);
    }
}
