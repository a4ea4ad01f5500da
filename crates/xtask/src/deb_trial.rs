//! `deb --try`: installs the package below a private root, starts its endpoint as systemd would, and removes it again.
//!
//! The machine's own dpkg is not touched: database, files and scripts are all below a directory of this run
//! (`dpkg --root` with `--force-script-chrootless`). Needs root, as dpkg does; otherwise it says so and only builds.
//! Not here: systemd itself, which a build machine seldom runs; its unit is read by `systemd-analyze verify` where that is.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::deb::{self, output, run as run_command};

/// A message of the endpoint comes in milliseconds, or never.
const PATIENCE: Duration = Duration::from_secs(30);

/// Builds the package and tries it.
pub fn run(purpose: deb::Purpose) -> Result<bool> {
    let file = deb::build(purpose)?;
    if output(Command::new("id").arg("-u"))?.trim() != "0" {
        ensure!(std::env::var_os("CI").is_none(), "not root: the package cannot be tried");
        println!("not root: the package is built and not tried");
        return Ok(true);
    }
    let ground = Ground::new(file.parent().context("a directory")?)?;
    ground.install(&file)?;
    ground.verify_unit()?;
    ground.serve()?;
    ground.remove()?;
    println!("installed, served, removed and purged below a root of its own");
    Ok(true)
}

/// A root that goes when the trial ends.
struct Ground {
    root: PathBuf,
}

impl Ground {
    fn new(beside: &Path) -> Result<Ground> {
        // What a trial that was killed has left.
        for left in
            fs::read_dir(beside)?.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"root-"))
        {
            let _ = fs::remove_dir_all(left.path());
        }
        let root = beside.join(format!("root-{}", std::process::id()));
        for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/log", "etc", "tmp"]
        {
            fs::create_dir_all(root.join(directory))?;
        }
        for file in ["var/lib/dpkg/status", "var/lib/dpkg/available", "etc/passwd", "etc/group"] {
            fs::write(root.join(file), "")?;
        }
        Ok(Ground { root })
    }

    fn dpkg(&self) -> Command {
        let mut dpkg = Command::new("dpkg");
        // What the package needs is in no database of this root.
        dpkg.arg(format!("--root={}", self.root.display())).args(["--force-script-chrootless", "--force-depends"]);
        dpkg.stdout(Stdio::null());
        dpkg
    }

    fn install(&self, file: &Path) -> Result<()> {
        run_command(self.dpkg().arg("--install").arg(file))?;
        for installed in ["usr/bin/thalweg", "etc/thalweg/endpoint.toml", "usr/share/man/man1/thalweg-cp.1.gz"] {
            ensure!(self.root.join(installed).is_file(), "{installed} was not installed");
        }
        let users = fs::read_to_string(self.root.join("etc/passwd"))?;
        ensure!(users.contains("thalweg:"), "the service's user was not made");
        Ok(())
    }

    /// Only what is wrong in the unit itself: its program is below another root.
    fn verify_unit(&self) -> Result<()> {
        let unit = self.root.join("tmp/thalweg.service");
        let text = fs::read_to_string(self.root.join("usr/lib/systemd/system/thalweg.service"))?;
        let program = self.root.join("usr/bin/thalweg");
        let text = text.replace("/usr/bin/thalweg", &program.display().to_string());
        let text: String =
            text.lines().filter(|line| !line.starts_with("Documentation=")).map(|l| format!("{l}\n")).collect();
        fs::write(&unit, text)?;
        let verified = Command::new("systemd-analyze").arg("verify").arg(&unit).output();
        match verified {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                ensure!(std::env::var_os("CI").is_none(), "systemd-analyze is not installed: the unit is not checked");
                println!("systemd-analyze is not installed: the unit is not checked by it");
                Ok(())
            }
            verified => {
                let verified = verified?;
                let said = String::from_utf8_lossy(&verified.stderr).into_owned();
                let about: Vec<&str> = said.lines().filter(|line| line.contains("thalweg.service")).collect();
                ensure!(about.is_empty(), "systemd-analyze verify: {}", about.join("; "));
                Ok(())
            }
        }
    }

    /// Starts what the unit starts, with the settings of the package below this root and another port.
    fn serve(&self) -> Result<()> {
        let settings = fs::read_to_string(self.root.join("etc/thalweg/endpoint.toml"))?;
        let own = format!("{}/var/lib/thalweg", self.root.display());
        let settings = settings.replace("/var/lib/thalweg", &own).replace("[::]:7740", "127.0.0.1:0");
        let config = self.root.join("tmp/endpoint.toml");
        fs::write(&config, settings)?;
        for directory in ["data", "state"] {
            fs::create_dir_all(Path::new(&own).join(directory))?;
        }
        // A socket's path is short, so the abstract name is used, as systemd itself does in containers.
        let name = format!("thalweg-deb-{}", std::process::id());
        let address =
            <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name)?;
        let socket = UnixDatagram::bind_addr(&address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut serve = Command::new(self.root.join("usr/bin/thalweg"));
        serve.arg("--config").arg(&config).arg("serve");
        serve.env("NOTIFY_SOCKET", format!("@{name}")).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
        let mut child = Served(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        expect(&socket, "READY=1")?;
        expect(&socket, "WATCHDOG=1")?;
        ensure!(Path::new(&own).join("ticket").is_file(), "no ticket was written");
        run_command(Command::new("kill").args(["-TERM", &child.0.id().to_string()]))?;
        expect(&socket, "STOPPING=1")?;
        let status = child.0.wait()?;
        ensure!(status.success(), "the endpoint ended with {status}");
        Ok(())
    }

    fn remove(&self) -> Result<()> {
        run_command(self.dpkg().args(["--remove", "thalweg"]))?;
        ensure!(!self.root.join("usr/bin/thalweg").exists(), "the program is left");
        ensure!(self.root.join("etc/thalweg/endpoint.toml").exists(), "settings must outlast a removal");
        run_command(self.dpkg().args(["--purge", "thalweg"]))?;
        ensure!(!self.root.join("etc/thalweg").exists(), "settings outlast a purge");
        ensure!(!self.root.join("var/lib/thalweg/state").exists(), "the identity outlasts a purge");
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Killed if the trial ends early.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a message that starts so; signs of life may come between.
fn expect(socket: &UnixDatagram, start: &str) -> Result<()> {
    let mut buffer = [0u8; 4096];
    loop {
        let bytes = socket.recv(&mut buffer).with_context(|| format!("wait for {start}"))?;
        let said = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
        if said.starts_with(start) {
            return Ok(());
        }
        if !said.starts_with("WATCHDOG=1") {
            bail!("{said} came instead of {start}");
        }
    }
}
