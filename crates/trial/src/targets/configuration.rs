//! Files that people write: scenarios of the laboratory, known endpoints.

use super::bytes::Bytes;
use daemon::Endpoint;
use lab::scenario::Scenario;

/// So much memory may a scenario's queues take; of a host that has more than any.
const MEMORY_BYTES: u64 = 1 << 40;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let kind = bytes.u8();
    let content = bytes.rest();
    match kind % 4 {
        0..=2 => scenario(content),
        _ => endpoint(content),
    }
}

fn scenario(content: &[u8]) {
    let Ok(text) = std::str::from_utf8(content) else { return };
    let scenario = match Scenario::from_toml(text) {
        Ok(scenario) => scenario,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    // What cannot be built need not have a form that reads back: its names may be anything.
    if scenario.check(MEMORY_BYTES).is_ok() {
        let written = scenario.to_toml();
        let again = Scenario::from_toml(&written).ok();
        assert_eq!(again, Some(scenario), "a scenario does not write back: {written}");
    }
}

fn endpoint(content: &[u8]) {
    let Ok(endpoint) = Endpoint::parse("lab", content) else { return };
    assert!(!endpoint.addresses.is_empty() && endpoint.name == "lab");
    let again = Endpoint::parse("lab", endpoint.to_text().as_bytes());
    assert_eq!(again.ok(), Some(endpoint), "an endpoint does not write back");
}
