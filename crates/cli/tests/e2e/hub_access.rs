//! Who may do what at a hub that is reached over the network: each request in each role, sessions of browsers, and hostile clients.

use crate::bed::{Bed, Server, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::Duration;

const OPENAPI: &str = include_str!("../../../api/openapi.json");

/// A hub on a port of loopback, with two endpoints.
struct House {
    bed: Bed,
    _a: Server,
    _b: Server,
    hub: Child,
    address: String,
    pin: String,
}

/// An answer over plain HTTP.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(known, _)| known.eq_ignore_ascii_case(name)))
            .map(|(_, v)| v)
    }
}

impl House {
    fn new() -> House {
        let bed = Bed::new();
        let serve = |name: &str| {
            let (root, ticket) = (format!("root-{name}"), format!("ticket-{name}"));
            fs::create_dir_all(bed.path(&root)).unwrap();
            fs::create_dir_all(bed.path(name)).unwrap();
            let words = ["serve", "--listen", "127.0.0.1:0", "--root", &root, "--ticket-file", &ticket, "--name", name];
            bed.serve_with(bed.command(name, &words))
        };
        let (a, b) = (serve("sitea"), serve("siteb"));
        let mut hub = bed.start(&["hub", "--state-dir", "hub-state", "--listen", "127.0.0.1:0"]);
        let mut lines = BufReader::new(hub.stdout.take().unwrap()).lines();
        let said: Vec<String> = lines.by_ref().take(2).map(Result::unwrap).collect();
        let (address, pin) = said[1].strip_prefix("ready on https://").unwrap().split_once(", certificate ").unwrap();
        let (address, pin) = (address.to_owned(), pin.to_owned());
        for name in ["sitea", "siteb"] {
            let ticket = format!("ticket-{name}");
            bed.run(&["endpoint", "add", name, "--ticket-file", &ticket, "--hub"]).succeeded();
        }
        House { bed, _a: a, _b: b, hub, address, pin }
    }

    fn token(&self, name: &str, scopes: &str) -> String {
        let file = format!("{name}.token");
        self.bed.run(&["token", "new", name, "--scopes", scopes, "--expires", "1h", "--token-file", &file]).succeeded();
        fs::read_to_string(self.bed.path(file)).unwrap().trim().to_owned()
    }

    fn allow(&self, rule: &str) {
        self.bed.run(&["rule", "add", rule]).succeeded();
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        self.raw(format!("{head}\r\n{body}").as_bytes())
    }

    /// Of a stream that does not end only the head is read.
    fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // It may have been refused before all was sent.
        let _ = stream.write_all(bytes);
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).unwrap_or(0) > 2 {}
        let mut body = String::new();
        if !head.contains("text/event-stream") {
            let _ = reader.read_to_string(&mut body);
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Answer { status, head, body }
    }

    fn with(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        self.ask(method, path, &[("Authorization", &bearer)], body)
    }

    fn code(&self) -> String {
        let said = self.bed.run(&["console", "--json"]).succeeded().events().pop().unwrap();
        let url = said["url"].as_str().unwrap().to_owned();
        url.strip_prefix(&format!("http://{}/#code=", self.address)).unwrap().to_owned()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.hub.kill();
        let _ = self.hub.wait();
    }
}

#[test]
fn each_request_is_answered_in_the_roles_that_may_make_it_and_in_no_other() {
    let house = House::new();
    let roles = ["read", "submit", "steer", "admin", "read,submit,steer"];
    let tokens: Vec<String> = roles.iter().map(|scopes| house.token(&scopes.replace(',', "-"), scopes)).collect();
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let id = "0".repeat(32);
    let mut cells = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        let path = template.replace("{id}", &id).replace("{verb}", "pause").replace("{name}", "nobody");
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let method = method.to_uppercase();
            let needs = operation["x-scope"].as_str();
            let what = format!("{method} {path}");
            let stranger = house.ask(&method, &path, &[], "{}").status;
            let is_login = what == "POST /api/v1/session";
            assert_eq!(stranger == 401, needs.is_some(), "{what}: {stranger} for a stranger");
            let wrong = house.with(&format!("twh_{}", "0".repeat(64)), &method, &path, "{}").status;
            assert_eq!(wrong == 401, needs.is_some(), "{what}: {wrong} with a wrong token");
            for (scopes, token) in roles.iter().zip(&tokens) {
                let status = house.with(token, &method, &path, "{}").status;
                let may = needs.is_none_or(|needs| needs == "any" || *scopes == "admin" || scopes.contains(needs));
                let is_refused = status == 403;
                assert_eq!(!may, is_refused, "{what}: {status} with {scopes}");
                assert!(may || !is_login, "{what}");
                assert!(status != 401 && (200..500).contains(&status), "{what}: {status} with {scopes}");
                cells += 1;
            }
        }
    }
    assert!(cells >= 19 * roles.len(), "only {cells} cells");
    // What is in no table is not there, for nobody.
    for path in ["/api/v1/nothing", "/metrics", "/api/v2/jobs", "/api/v1/jobs/x/y/z"] {
        assert_eq!(house.with(&tokens[3], "GET", path, "").status, 404, "{path}");
    }
    assert_eq!(house.with(&tokens[3], "PUT", "/api/v1/jobs", "").status, 405);
    // What is held by a stranger is told nothing but that the hub is there.
    let stranger = house.ask("GET", "/api/v1/jobs", &[], "");
    assert!(stranger.header("www-authenticate").unwrap().starts_with("Bearer"), "{}", stranger.head);
    assert_eq!(stranger.header("content-type"), Some("application/problem+json"));
}

#[test]
fn what_is_somebody_elses_is_not_there_and_what_no_rule_allows_is_refused() {
    let house = House::new();
    // At its rate the job outlasts the test: once it has ended, the same job would be another one.
    house.bed.write("root-sitea/x/one", &crate::bed::noise(256 << 10, 1));
    let (one, other) = (house.token("one", "read,submit,steer"), house.token("other", "read,submit,steer"));
    let admin = house.token("boss", "admin");
    let job = json!({"source": "sitea:x/", "destination": "siteb:y/", "rate": "1K"}).to_string();
    let refused = house.with(&one, "POST", "/api/v1/jobs", &job);
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!(6)), "{}", refused.body);
    assert_eq!(house.with(&one, "GET", "/api/v1/endpoints", "").json(), json!([]));
    house.allow("allow token:one list,read sitea:x");
    house.allow("allow token:one write siteb:");
    assert_eq!(house.with(&one, "GET", "/api/v1/endpoints", "").json().as_array().unwrap().len(), 2);
    let sent = house.with(&one, "POST", "/api/v1/jobs", &job);
    assert_eq!(sent.status, 201, "{}", sent.body);
    let id = sent.json()["id"].as_str().unwrap().to_owned();
    // Whatever is asked of a job, it is there for its owner alone.
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut asked = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        if !["/jobs/{id}", "/rehearsals/{id}"].iter().any(|what| template.contains(what)) {
            continue;
        }
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let body = if method == "patch" { "{\"priority\": 1}" } else { "" };
            for verb in ["pause", "resume", "cancel", "retry"] {
                let path = template.replace("{id}", &id).replace("{verb}", verb);
                let answer = house.with(&other, &method.to_uppercase(), &path, body);
                assert_eq!(answer.status, 404, "{method} {path}: {}", answer.body);
                asked += 1;
            }
        }
    }
    assert!(asked >= 32, "only {asked}");
    assert_eq!(house.with(&other, "GET", "/api/v1/jobs?owner=token:one", "").json()["jobs"], json!([]));
    assert_eq!(house.with(&other, "GET", "/api/v1/summary", "").json()["open"], json!({}));
    for token in [&one, &admin] {
        let shown = house.with(token, "GET", &format!("/api/v1/jobs/{id}"), "").json();
        assert_eq!(shown["owner"], "token:one", "{shown}");
    }
    // Two people behind one connection are two.
    let request =
        |token: &str| format!("GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
    let both = format!("{}\r\n{}Connection: close\r\n\r\n", request(&admin), request(&other));
    let told = house.raw(both.as_bytes());
    let told = [told.head, told.body].concat();
    let (first, last) = (told.find("token:boss").unwrap(), told.find("token:other").unwrap());
    assert!(first < last && told.matches("\"is_admin\":true").count() == 1, "{told}");
    // The same key of two people is two keys.
    let keyed = |token: &str| {
        let bearer = format!("Bearer {token}");
        house.ask("POST", "/api/v1/jobs", &[("Authorization", &bearer), ("Idempotency-Key", "k")], &job).status
    };
    assert_eq!((keyed(&one), keyed(&other)), (200, 403));
}

#[test]
fn what_a_rule_does_not_allow_any_more_ends_with_it() {
    let house = House::new();
    house.bed.write("root-sitea/x/big", &crate::bed::noise(64 << 20, 3));
    let one = house.token("one", "read,submit");
    house.allow("allow token:one read sitea:");
    house.allow("allow token:one write siteb:");
    let job = json!({"source": "sitea:x/", "destination": "siteb:y/", "rate": "1M"}).to_string();
    let id = house.with(&one, "POST", "/api/v1/jobs", &job).json()["id"].as_str().unwrap().to_owned();
    let status = || house.with(&one, "GET", &format!("/api/v1/jobs/{id}"), "").json()["status"].clone();
    until("it to run", || status() == "running");
    let removed = house.bed.run(&["rule", "rm", "allow token:one write siteb:"]).succeeded();
    assert!(removed.stderr.contains("1 job that nothing allows any more cancelled"), "{}", removed.stderr);
    until("it to end", || status() == "cancelled");
    let again = house.with(&one, "POST", "/api/v1/jobs", &job);
    assert!(again.status == 403 && again.body.contains("may not write siteb:y/"), "{}", again.body);
    house.bed.run(&["token", "rm", "one"]).succeeded();
    assert_eq!(house.with(&one, "GET", "/api/v1/jobs", "").status, 401);
    assert_eq!(house.bed.run(&["rule", "ls"]).succeeded().stdout, b"");
}

#[test]
fn a_browser_is_let_in_once_by_a_code_and_changes_things_from_the_hubs_own_pages_alone() {
    let house = House::new();
    let own = format!("http://{}", house.address);
    let begin = |code: &str, headers: &[(&str, &str)]| {
        house.ask("POST", "/api/v1/session", headers, &json!({"code": code}).to_string())
    };
    let code = house.code();
    assert_eq!(begin(&code, &[("Origin", "http://evil.example")]).status, 403);
    let begun = begin(&code, &[("Origin", &own)]);
    assert_eq!(begun.status, 201, "{}", begun.body);
    assert_eq!(begin(&code, &[]).status, 401, "a code is good once");
    let set = begun.header("set-cookie").unwrap().to_owned();
    assert!(["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"].iter().all(|word| set.contains(word)), "{set}");
    let cookie = set.split(';').next().unwrap().to_owned();
    let who = house.ask("GET", "/api/v1/session", &[("Cookie", &cookie)], "").json();
    assert_eq!(who["is_admin"], true, "{who}");
    let forget = "/api/v1/tokens/nobody";
    for (headers, status) in [
        (vec![], 403),
        (vec![("Origin", "http://evil.example")], 403),
        (vec![("Origin", "null")], 403),
        (vec![("Origin", &own[..]), ("Sec-Fetch-Site", "cross-site")], 403),
        (vec![("Sec-Fetch-Site", "same-site")], 403),
        (vec![("Sec-Fetch-Site", "same-origin")], 404),
        (vec![("Origin", &own[..])], 404),
    ] {
        let headers = [&headers[..], &[("Cookie", &cookie[..])]].concat();
        assert_eq!(house.ask("DELETE", forget, &headers, "").status, status, "{headers:?}");
    }
    // Another name for this address may be somebody else's page.
    for (host, status) in [("evil.example", 421), ("", 421), ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:7", 200)]
    {
        let headers = [("Cookie", &cookie[..]), ("Host", host)];
        assert_eq!(house.ask("GET", "/api/v1/session", &headers, "").status, status, "{host}");
    }
    let page = house.ask("GET", "/", &[], "");
    assert!(page.status == 200 && page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let ended = house.ask("DELETE", "/api/v1/session", &[("Cookie", &cookie), ("Origin", &own)], "");
    assert_eq!(ended.status, 204);
    assert_eq!(house.ask("GET", "/api/v1/session", &[("Cookie", &cookie)], "").status, 401);
    // Whoever tries codes is put off; whoever has one is not.
    let tried: Vec<u16> = (0..8).map(|_| begin("wrong", &[]).status).collect();
    assert!(tried.starts_with(&[401]) && tried.ends_with(&[429, 429]), "{tried:?}");
    assert_eq!(begin(&house.code(), &[]).status, 201);
    // A session is worth what its token is worth.
    let token = house.token("one", "read");
    let code = house.with(&token, "POST", "/api/v1/session/code", "").json()["code"].as_str().unwrap().to_owned();
    let cookie = begin(&code, &[]).header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let status = || house.ask("GET", "/api/v1/jobs", &[("Cookie", &cookie)], "").status;
    assert_eq!(status(), 200);
    house.bed.run(&["token", "rm", "one"]).succeeded();
    assert_eq!(status(), 401);
}

#[test]
fn a_client_that_sends_too_much_or_nothing_costs_little_and_hinders_nobody() {
    let house = House::new();
    let token = house.token("one", "read,submit");
    let long = "x".repeat(20 << 10);
    assert_eq!(house.ask("GET", "/healthz", &[("X-Long", &long)], "").status, 431);
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    assert_eq!(house.raw(format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes()).status, 431);
    let large = format!("{{\"source\":\"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(house.with(&token, "POST", "/api/v1/jobs", &large).status, 413);
    // A stranger's body is not even read.
    assert_eq!(house.ask("POST", "/api/v1/jobs:batch", &[], &"x".repeat(1 << 20)).status, 401);
    let deep = format!("{{\"source\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(house.with(&token, "POST", "/api/v1/jobs", &deep).status, 400);
    let twice = "{\"source\":\"sitea:x\",\"destination\":\"siteb:y\",\"destination\":\"siteb:z\"}";
    assert_eq!(house.with(&token, "POST", "/api/v1/jobs", twice).status, 400);
    for garbage in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert!([0, 400, 404, 421, 505].contains(&house.raw(garbage).status), "{garbage:?}");
    }
    // Heads that never end hold their connection for a while, and nobody else up.
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&house.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
            stream
        })
        .collect();
    assert_eq!(house.with(&token, "GET", "/api/v1/jobs", "").status, 200);
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).unwrap();
    }
    let log = fs::read_to_string(house.bed.path("hub-state/access.json")).unwrap();
    assert!(!log.contains(&token[4..]));
}

#[test]
fn commands_reach_a_hub_elsewhere_by_its_pin_and_a_token_in_a_private_file() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::new();
    house.bed.write("root-sitea/x/one", b"one");
    house.token("one", "read,submit,steer");
    house.allow("allow token:one read sitea:x");
    house.allow("allow token:one write siteb:y");
    let url = format!("https://{}", house.address);
    let elsewhere = |words: &[&str], pin: &str| {
        let more = ["--hub-url", &url, "--hub-token-file", "one.token", "--hub-pin", pin];
        // Another user of another host.
        house.bed.finish(house.bed.command("elsewhere", &[words, &more].concat()))
    };
    house.bed.write("job.toml", b"source = \"sitea:x/\"\ndestination = \"siteb:y/\"\n");
    let ran = elsewhere(&["submit", "job.toml"], &house.pin).succeeded();
    let id = String::from_utf8(ran.stdout).unwrap().split_whitespace().last().unwrap().to_owned();
    elsewhere(&["job", "watch", &id], &house.pin).succeeded();
    assert_eq!(fs::read(house.bed.path("root-siteb/y/one")).unwrap(), b"one");
    assert_eq!(elsewhere(&["job", "ls", "--json"], &house.pin).succeeded().events().len(), 1);
    let refused = elsewhere(&["token", "ls"], &house.pin);
    assert!(refused.code == Some(6) && refused.error().contains("this needs admin"), "{}", refused.stderr);
    let untrusted = elsewhere(&["queue"], &"0".repeat(64));
    assert!(untrusted.code == Some(41) && untrusted.error().contains("not the pinned one"), "{}", untrusted.stderr);
    let open = elsewhere(&["console"], &house.pin).succeeded();
    assert!(String::from_utf8(open.stdout).unwrap().starts_with(&format!("{url}/#code=")));
    fs::set_permissions(house.bed.path("one.token"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(elsewhere(&["queue"], &house.pin).code, Some(6));
    let clear = house.bed.run(&["queue", "--hub-url", "http://192.0.2.1:7741", "--hub-token-file", "one.token"]);
    assert!(clear.code == Some(2) && clear.error().contains("in clear text"), "{}", clear.stderr);
    let without = house.bed.run(&["queue", "--hub-url", &url]);
    assert!(without.code == Some(2) && without.error().contains("needs a token"), "{}", without.stderr);
}

#[test]
fn a_client_that_was_generated_from_the_document_understands_every_answer() {
    if !needs::program("openapi-python-client") || !needs::program("openapi-spec-validator") {
        return;
    }
    let house = House::new();
    house.bed.write("root-sitea/x/one", &crate::bed::noise(1 << 20, 1));
    let token = house.token("boss", "admin");
    let document = house.ask("GET", "/api/v1/openapi.json", &[], "").body;
    let document = house.bed.write("openapi.json", document.as_bytes());
    let run = |command: &mut Command| {
        let ran = command.current_dir(house.bed.dir.path()).output().unwrap();
        let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(ran.status.success(), "{said}");
        said
    };
    run(Command::new("openapi-spec-validator").arg(&document));
    let generate = ["generate", "--meta", "none", "--output-path", "generated/hubclient", "--path"];
    fs::create_dir(house.bed.path("generated")).unwrap();
    run(Command::new("openapi-python-client").args(generate).arg(&document));
    let search = std::env::var_os("PATH").unwrap_or_default();
    let beside = std::env::split_paths(&search).find(|dir| dir.join("openapi-python-client").exists()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/generated_client.py");
    let url = format!("http://{}", house.address);
    // Words of a command are seen by others on the host; this token is worth nothing to them.
    let said = run(Command::new(beside.join("python3")).args([script, "generated", &url, &token]));
    assert!(said.contains("all of it"), "{said}");
}
