//! WebDAV servers of other people: XRootD with TLS, as the program's users meet it. curl reads back what was written.

use crate::bed::{Bed, Ran, noise, until};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// XRootD servers that end with the test, under one authority.
struct Site {
    bed: Bed,
    servers: Vec<(Child, u16)>,
}

impl Drop for Site {
    fn drop(&mut self) {
        for (child, _) in &mut self.servers {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn shell(bed: &Bed, script: &str) {
    let ran = Command::new("sh").args(["-ec", script]).current_dir(bed.dir.path()).output().unwrap();
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
}

impl Site {
    /// `None` where something is missing, which is said.
    fn start(count: usize) -> Option<Site> {
        let bed = Bed::new();
        let built = !bed.run(&["ls", "dav://127.0.0.1:1/"]).stderr.contains("has no WebDAV");
        if !needs::met(built, "the program was built without --features full")
            || !["xrootd", "openssl", "curl"].into_iter().all(needs::program)
        {
            return None;
        }
        shell(
            &bed,
            "chmod 755 .; mkdir ca; openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
             openssl req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=localhost
             printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\nextendedKeyUsage=serverAuth,clientAuth\\n' > ext
             openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out host.pem
             cp ca.pem ca/; openssl rehash ca; chmod 755 ca; chmod 644 ca/*.pem host.pem; chmod 400 host.key",
        );
        let is_root = Path::new("/root").read_dir().is_ok();
        if is_root {
            shell(&bed, "chown nobody host.key");
        }
        let servers = (0..count).map(|number| serve(&bed, number, is_root)).collect();
        Some(Site { bed, servers })
    }

    fn url(&self, server: usize, path: &str) -> String {
        format!("davs://localhost:{}/{path}", self.servers[server].1)
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.bed.command("client", args);
        command.env("SSL_CERT_FILE", self.bed.path("ca.pem"));
        self.bed.finish(command)
    }

    /// A file as another client reads it.
    fn read(&self, server: usize, path: &str) -> Vec<u8> {
        let url = format!("https://localhost:{}/{path}", self.servers[server].1);
        let ran =
            Command::new("curl").args(["-sf", "--cacert"]).arg(self.bed.path("ca.pem")).arg(url).output().unwrap();
        assert!(ran.status.success(), "curl: {}", ran.status);
        ran.stdout
    }
}

fn serve(bed: &Bed, number: usize, is_root: bool) -> (Child, u16) {
    let (port, http, top) = (port(), port(), bed.dir.path().display().to_string());
    let root = format!("{top}/s{number}");
    fs::create_dir_all(format!("{root}/d")).unwrap();
    let text = format!(
        "xrd.port {port}\nxrd.network nodnr norpipa\nall.export /d\noss.localroot {root}\nall.adminpath {root}/adm\n\
         all.pidpath {root}/adm\nxrd.tls {top}/host.pem {top}/host.key\nxrd.tlsca certdir {top}/ca\n\
         xrd.protocol http:{http} libXrdHttp.so\nhttp.exthandler xrdtpc libXrdHttpTPC.so\nhttp.desthttps yes\n\
         xrootd.chksum adler32\n"
    );
    let configuration = bed.write(&format!("s{number}.cf"), text.as_bytes());
    let mut command = Command::new("xrootd");
    command.args(["-I", "v4", "-c"]).arg(configuration);
    if is_root {
        shell(bed, &format!("chown -R nobody {root}"));
        command.args(["-R", "nobody"]);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("xrootd listens", || TcpStream::connect(("127.0.0.1", http)).is_ok());
    (child, http)
}

/// What a tree holds, without times, which XRootD does not keep.
fn held(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut held = Vec::new();
    let mut pending = vec![path.to_owned()];
    while let Some(directory) = pending.pop() {
        for found in fs::read_dir(&directory).unwrap() {
            let at = found.unwrap().path();
            let name = at.strip_prefix(path).unwrap().to_str().unwrap().to_owned();
            if at.is_dir() {
                held.push((name, Vec::new()));
                pending.push(at);
            } else {
                held.push((name, fs::read(at).unwrap()));
            }
        }
    }
    held.sort();
    held
}

#[test]
fn a_tree_goes_to_an_xrootd_server_and_comes_back() {
    let Some(site) = Site::start(1) else { return };
    let bed = &site.bed;
    for (name, bytes) in [("large", 20 << 20), ("empty", 0), ("dir/small", 100), ("my dir/odd \u{e9}%41", 3)] {
        bed.write(&format!("tree/{name}"), &noise(bytes, 3));
    }
    let there = site.url(0, "d/a/b/");
    let ran = site.run(&["cp", "tree/", &there]).succeeded();
    assert!(ran.stderr.contains("; confirmed by the store"), "{}", ran.stderr);
    assert_eq!(held(&bed.path("tree")), held(&bed.path("s0/d/a/b")));
    assert!(site.read(0, "d/a/b/large") == noise(20 << 20, 3));
    let again = site.run(&["sync", "--delete", "tree/", &there]).succeeded();
    assert!(again.stderr.contains("copied 0 files"), "{}", again.stderr);
    site.run(&["check", "tree/", &there]).succeeded();
    site.run(&["cp", "--verify", "reread", &there, "back/"]).succeeded();
    assert_eq!(held(&bed.path("tree")), held(&bed.path("back")));
    site.run(&["mv", &site.url(0, "d/a/b/large"), &site.url(0, "d/a/b/my dir/moved")]).succeeded();
    assert!(!bed.path("s0/d/a/b/large").exists() && bed.path("s0/d/a/b/my dir/moved").exists());
    // Into a directory that needs escapes itself.
    site.run(&["cp", "tree/dir/small", &site.url(0, "d/a/b/my dir/")]).succeeded();
    assert_eq!(site.read(0, "d/a/b/my%20dir/small"), noise(100, 3));
    assert_eq!(fs::read_dir(bed.path("s0/d/a")).unwrap().count(), 1, "a directory was left");
    site.run(&["sync", "--delete", "tree/", &there]).succeeded();
    assert_eq!(held(&bed.path("tree")), held(&bed.path("s0/d/a/b")));
    let kept = site.run(&["cp", "--no-clobber", "tree/empty", &site.url(0, "d/a/b/dir/small")]).succeeded();
    assert!(kept.stderr.contains("1 skipped"), "{}", kept.stderr);
    site.run(&["mkdir", "-p", &site.url(0, "d/new/er")]).succeeded();
    site.run(&["rm", "-r", &site.url(0, "d/a")]).succeeded();
    assert!(!bed.path("s0/d/a").exists() && bed.path("s0/d/new/er").is_dir());
}

#[test]
fn a_server_that_nobody_vouches_for_is_told_and_a_table_vouches() {
    let Some(site) = Site::start(1) else { return };
    let (bed, url) = (&site.bed, site.url(0, "d/"));
    bed.write("f", b"content");
    let refused = bed.run(&["cp", "f", &url]);
    assert_eq!(refused.code, Some(41), "{}", refused.stderr);
    assert!(refused.stderr.contains("ca_file"), "{}", refused.stderr);
    let table = |token: &str| {
        format!(
            "[stores.site]\nkind = \"dav\"\nendpoint = \"davs://localhost:{}\"\nca_file = \"{}\"\n{token}",
            site.servers[0].1,
            bed.path("ca.pem").display()
        )
    };
    bed.write("client/config_home/thalweg/config.toml", table("").as_bytes());
    bed.run(&["cp", "f", &url]).succeeded();
    assert_eq!(site.read(0, "d/f"), b"content");
    bed.write("client/config_home/thalweg/config.toml", table("token_file = \"none\"\n").as_bytes());
    let missing = bed.run(&["ls", &url]);
    assert!(missing.code == Some(2) && missing.stderr.contains("the token file none"), "{}", missing.stderr);
}

#[test]
fn two_servers_copy_between_themselves_and_what_they_refuse_goes_through_this_host() {
    let Some(site) = Site::start(2) else { return };
    let bed = &site.bed;
    bed.write("tree/large", &noise(20 << 20, 5));
    bed.write("tree/small", b"small");
    site.run(&["cp", "tree/", &site.url(0, "d/a/")]).succeeded();
    // A server believes another one by the authorities that it knows: these know their own.
    let ran = site.run(&["cp", "--json", &site.url(0, "d/a/"), &site.url(1, "d/b/")]).succeeded();
    assert_eq!(ran.done()["store_copied_bytes"], 20 << 20, "{}", ran.stderr);
    assert!(ran.stderr.contains("1 file, 20.0 MiB, went from server to server"), "{}", ran.stderr);
    assert_eq!(held(&bed.path("tree")), held(&bed.path("s1/d/b")));
    assert!(site.read(1, "d/b/large") == noise(20 << 20, 5));
    // Whoever asks for content to be read has it come by here.
    let ran = site.run(&["cp", "--json", "--verify", "reread", &site.url(0, "d/a/"), &site.url(1, "d/c/")]).succeeded();
    assert_eq!(ran.done()["store_copied_bytes"], 0);
    assert_eq!(held(&bed.path("tree")), held(&bed.path("s1/d/c")));
}
