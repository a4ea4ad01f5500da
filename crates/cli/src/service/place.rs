//! Which hub a command asks: this user's own, over its socket, or one at a URL, with a token.

use crate::exit::{Result, error, usage};
use crate::output;
use daemon::{Paths, private_file};
use model::{Exit, Pin};
use std::path::PathBuf;
use web::{Client, Origin, Trust};

/// A token and a line end.
const TOKEN_BYTES_MAX: u64 = 1024;

/// Where this user's hub listens, and its clients look for it.
pub fn socket() -> Result<PathBuf> {
    Ok(Paths::from_env()?.runtime.join("hub.sock"))
}

// Which hub is asked.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hub")]
pub struct HubArgs {
    /// Ask the hub at this address, such as https://hub.example:7741 [default: the one that this user runs on this host]
    #[arg(long, value_name = "URL", env = "THALWEG_HUB_URL")]
    hub_url: Option<String>,
    /// The file with the token for it, readable by this user only
    #[arg(long, value_name = "FILE", env = "THALWEG_HUB_TOKEN_FILE")]
    hub_token_file: Option<PathBuf>,
    /// The pin of its certificate, as printed when the hub starts [default: trust this host's certificate authorities]
    #[arg(long, value_name = "PIN", value_parser = pin, env = "THALWEG_HUB_PIN")]
    hub_pin: Option<Pin>,
}

fn pin(text: &str) -> std::result::Result<Pin, String> {
    Pin::from_hex(text).ok_or_else(|| "a pin has 64 hexadecimal digits".to_owned())
}

impl HubArgs {
    /// The way there, and what to send with each request.
    pub fn client(&self) -> Result<(Client, Vec<(String, String)>)> {
        let hint = "write --hub-url as https://HOST:PORT";
        let Some(url) = &self.hub_url else {
            let client = Client::new(Origin::local(socket()?), &Trust::default());
            return Ok((client.map_err(|e| error(Exit::Failed, e.text, hint))?, Vec::new()));
        };
        let origin = Origin::parse(url).map_err(|e| usage(e.text, hint))?;
        if !origin.is_tls && !origin.is_loopback() {
            return Err(usage(
                format!("{} would carry the token in clear text", output::shown(url)),
                "write https://; plain HTTP is for this host's own addresses",
            ));
        }
        let trust = self.hub_pin.map_or(Trust::Host, |pin| Trust::Pin(pin.0));
        let client = Client::new(origin, &trust).map_err(|e| error(Exit::Failed, e.text, hint))?;
        let token = self.token()?;
        Ok((client, vec![("authorization".to_owned(), format!("Bearer {token}"))]))
    }

    fn token(&self) -> Result<String> {
        let advice = "an administrator of the hub makes one: thalweg token new NAME --scopes LIST --expires TIME --token-file FILE";
        let Some(file) = &self.hub_token_file else {
            return Err(usage("a hub at a URL needs a token, and --hub-token-file is missing", advice));
        };
        let bytes = private_file::read(file, TOKEN_BYTES_MAX, true)?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(|text| text.trim().to_owned());
        let is_token = |text: &String| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let shown = output::shown(file);
        text.filter(is_token).ok_or_else(|| usage(format!("{shown} is missing, or holds no token"), advice))
    }
}
