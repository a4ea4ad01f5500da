//! Single requests to one server: redirects, repetitions, and the token.
//!
//! Invariant: with a token nothing is asked of another host, and never less than TLS where TLS was asked for.

use crate::failure::{Failure, Result, Why};
use crate::path;
use model::VersionToken;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use web::{Client, Origin, Request, Response, Trust};

const REDIRECTS_MAX: usize = 5;
const TRIES_MAX: u32 = 4;

pub struct Site {
    client: Client,
    token: Option<String>,
    /// Where redirects led.
    others: Mutex<HashMap<String, Client>>,
    /// Single files by HEAD, no listings.
    pub is_plain: bool,
    pub storage: u64,
}

impl Site {
    pub fn new(origin: Origin, token: Option<String>, is_plain: bool) -> Result<Site> {
        let storage = VersionToken::of_tag(origin.authority().as_bytes(), 0).object();
        let client = Client::new(origin, &Trust::Host).map_err(|e| Failure::of_web(&e))?;
        Ok(Site { client, token, others: Mutex::default(), is_plain, storage })
    }

    /// Asks until the answer is a success that `wanted` names. XRootD knows headers only by their usual capitals.
    pub fn ask(
        &self,
        method: &'static str,
        path: &[u8],
        headers: &[(&str, String)],
        wanted: &[u16],
    ) -> Result<Response> {
        let mut wait = Duration::from_millis(100);
        for tried in 1.. {
            let failure = match self.follow(method, path, headers) {
                Ok(response) if wanted.contains(&response.status) => return Ok(response),
                Ok(response) if (200..300).contains(&response.status) => {
                    let text =
                        format!("the server answered with status {}, which is no answer to that", response.status);
                    return Err(Failure::new(Why::Other, text));
                }
                Ok(response) => Failure::of_status(response.status, self.token.is_some()),
                Err(failure) => failure,
            };
            if tried == TRIES_MAX || !failure.may_pass() {
                return Err(failure);
            }
            std::thread::sleep(wait);
            wait *= 4;
        }
        unreachable!("the last try returns")
    }

    fn follow(&self, method: &'static str, path: &[u8], headers: &[(&str, String)]) -> Result<Response> {
        let mut headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        headers.push(("User-Agent".to_owned(), "thalweg".to_owned()));
        if let Some(token) = &self.token {
            headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        let (mut client, mut target) = (self.client.clone(), path::encoded(path));
        for _ in 0..=REDIRECTS_MAX {
            let request = Request { method, target: &target, headers: &headers, body: b"" };
            let response = client.send(&request).map_err(|e| Failure::of_web(&e))?;
            if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let location = response.header("location").unwrap_or_default().to_owned();
            if location.starts_with('/') && !location.starts_with("//") {
                target = location;
                continue;
            }
            let after = location.split_once("://").map_or("", |(_, rest)| rest);
            let end = location.len() - after.len() + after.find(['/', '?']).unwrap_or(after.len());
            let origin = Origin::parse(&location[..end])
                .map_err(|_| Failure::new(Why::Untrusted, "the server redirects to an address that is none"))?;
            let home = self.client.origin();
            if origin != *home && (self.token.is_some() || (home.is_tls && !origin.is_tls)) {
                let to = origin.authority();
                let text = match self.token.is_some() {
                    true => format!("the server redirects to {to}, where this token does not go"),
                    false => format!("the server redirects to {to}, which is not encrypted"),
                };
                return Err(Failure::new(Why::Untrusted, text));
            }
            target = location[end..].to_owned();
            if !target.starts_with('/') {
                target.insert(0, '/');
            }
            client = self.at(origin)?;
        }
        Err(Failure::new(Why::Other, format!("the server redirects more than {REDIRECTS_MAX} times")))
    }

    fn at(&self, origin: Origin) -> Result<Client> {
        if origin == *self.client.origin() {
            return Ok(self.client.clone());
        }
        let mut others = self.others.lock().unwrap();
        if let Some(client) = others.get(&origin.authority()) {
            return Ok(client.clone());
        }
        let shown = origin.authority();
        let client = Client::new(origin, &Trust::Host).map_err(|e| Failure::of_web(&e))?;
        others.insert(shown, client.clone());
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fakes::http::{Said, serve};
    use std::net::TcpListener;

    #[test]
    fn a_token_goes_to_no_other_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let abroad = TcpListener::bind("127.0.0.1:0").unwrap();
        abroad.set_nonblocking(true).unwrap();
        let to = format!("http://{}/x", abroad.local_addr().unwrap());
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &|asked| {
                    assert_eq!(asked.header("authorization"), Some("Bearer hunter2"));
                    Said::new(307, b"").with("location", &to)
                });
            }
        });
        let site = Site::new(origin, Some("hunter2".to_owned()), false).unwrap();
        let failure = site.ask("GET", b"/x", &[], &[200]).err().unwrap();
        assert!(failure.why == Why::Untrusted && !failure.text.contains("hunter2"), "{failure}");
        assert!(failure.text.contains("where this token does not go"), "{failure}");
        assert_eq!(abroad.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
