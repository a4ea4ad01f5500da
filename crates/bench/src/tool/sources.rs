//! Programs that fetch one file from several servers at once.
//!
//! - aria2c, from `rclone serve http`, which answers ranges: one connection to each server, and parts of 1 MiB, the
//!   smallest it has, so that whoever is fast takes over what others have left.
//! - xrdcp, from xrootd, with the servers in a metalink file, and its own block size.
//!
//! Clear text without digests: the fastest they can do. Not here: where the servers stand (`repro::holders`).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Tool, make_writable_dir, version_of, xrootd};
use crate::error::{Error, Result};
use crate::process::Ready;

const HTTP_PORT: u16 = 8480;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Several {
    Aria2c,
    Xrdcp,
}

impl Several {
    pub const ALL: [Several; 2] = [Several::Aria2c, Several::Xrdcp];

    pub fn name(self) -> &'static str {
        match self {
            Several::Aria2c => "aria2c",
            Several::Xrdcp => "xrdcp",
        }
    }

    /// Of client and server. An error of kind `Missing` tells how to get them.
    pub fn version(self) -> Result<String> {
        match self {
            Several::Aria2c => {
                let client = version_of(Path::new("aria2c"), "--version", "aria2")?;
                Ok(format!("{client}, {}", version_of(Path::new("rclone"), "version", "rclone")?))
            }
            Several::Xrdcp => xrootd::Xrootd.version(),
        }
    }

    /// What serves a tree, in the foreground; its directory is made anew.
    pub fn server(self, address: Ipv4Addr, tree: &Path, dir: &Path) -> Result<(Command, Ready)> {
        if self == Several::Xrdcp {
            return xrootd::serve(tree, dir);
        }
        make_writable_dir(dir)?;
        let mut command = Command::new("rclone");
        // A configuration that does not exist, so that the user's is not read.
        command.args(["serve", "http", "--read-only", "--log-level", "ERROR", "--config"]).arg(dir.join("rclone.conf"));
        command.args(["--addr", &format!("{address}:{HTTP_PORT}")]).arg(tree);
        Ok((command, Ready::Listens(HTTP_PORT)))
    }

    /// What fetches a file of that size, which lies at the top of each server's tree, into a directory.
    pub fn client(self, servers: &[(Ipv4Addr, PathBuf)], file: &str, bytes: u64, to: &Path) -> Result<Command> {
        let mut command = Command::new(self.name());
        if self == Several::Aria2c {
            command.args(["--no-conf", "--no-netrc", "--quiet", "--file-allocation=none", "--min-split-size=1M"]);
            command.args(["--max-connection-per-server=1", &format!("--split={}", servers.len()), "--dir"]).arg(to);
            command.args(["--out", file]).args(servers.iter().map(|(at, _)| format!("http://{at}:{HTTP_PORT}/{file}")));
            command.env_remove("http_proxy").env_remove("all_proxy");
            return Ok(command);
        }
        let url = |(at, tree): &(Ipv4Addr, PathBuf)| {
            format!("<url>root://{at}:{}/{}/{file}</url>\n", xrootd::PORT, tree.display())
        };
        let urls: String = servers.iter().map(url).collect();
        let described = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n\
             <file name=\"{file}\">\n<size>{bytes}</size>\n{urls}</file>\n</metalink>\n"
        );
        let metalink = to.with_extension("meta4");
        std::fs::write(&metalink, described).map_err(Error::io("write", &metalink))?;
        command.args(["--nopbar", "--sources", &servers.len().to_string()]);
        command.arg(format!("file://localhost{}", metalink.display())).arg(to.join(file));
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let servers = [1, 2].map(|n| (Ipv4Addr::new(10, 0, 0, n), PathBuf::from(format!("/data/{n}"))));
        let words = |rival: Several| {
            let command = rival.client(&servers, "set", 7, &dir.path().join("to")).unwrap();
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let aria2c = words(Several::Aria2c);
        assert!(aria2c.ends_with(&["http://10.0.0.1:8480/set", "http://10.0.0.2:8480/set"].map(str::to_owned)));
        let xrdcp = words(Several::Xrdcp);
        let metalink = xrdcp.iter().find_map(|word| word.strip_prefix("file://localhost")).unwrap();
        let metalink = std::fs::read_to_string(metalink).unwrap();
        assert_eq!(metalink.matches("<url>").count(), 2);
        for there in ["<size>7</size>", "<url>root://10.0.0.2:1094//data/2/set</url>"] {
            assert!(metalink.contains(there), "{metalink}");
        }
    }
}
