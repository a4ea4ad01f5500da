//! Who has which address, and over which links sites reach each other.
//!
//! Site `s` (from 1) has on link `k` (from 0) the network 10.(80+k).s.0/24: host `h` is `.h`, its latency host `.254`.
//! The latency hosts of link `k` face each other on 10.(80+k).200.0/30. In a star, the latency hosts at the core share a
//! switch and the network 10.79.0.0/24.

use crate::scenario::{End, Scenario};

pub(super) const GATEWAY: u8 = 254;

/// Without the last number.
pub(super) fn site_prefix(link: usize, site: usize) -> String {
    format!("10.{}.{}", 80 + link, site + 1)
}

/// Of the latency host beside `ends[end]`, towards the other.
pub(super) fn wan_address(link: usize, end: usize) -> String {
    format!("10.{}.200.{}", 80 + link, end + 1)
}

pub(super) fn core_address(link: usize) -> String {
    format!("10.79.0.{}", link + 1)
}

/// Of the latency host beside `ends[end]`, away from the link, with its prefix length.
pub(super) fn lan_address(scenario: &Scenario, link: usize, end: usize) -> String {
    match scenario.links[link].ends[end] {
        End::Site(site) => format!("{}.{GATEWAY}/24", site_prefix(link, site)),
        End::Core => format!("{}/24", core_address(link)),
    }
}

/// The links that end at a site.
pub(super) fn links_of(scenario: &Scenario, site: usize) -> impl Iterator<Item = usize> {
    (0..scenario.links.len()).filter(move |link| scenario.links[*link].ends.contains(&End::Site(site)))
}

/// The sites that `site` reaches over `link`, each with the link by which it is joined at its own end.
pub(super) fn reached(scenario: &Scenario, site: usize, link: usize) -> Vec<(usize, usize)> {
    match scenario.links[link].ends {
        [End::Site(a), End::Site(b)] => vec![(if a == site { b } else { a }, link)],
        _ => access_links(scenario).into_iter().filter(|(other, _)| *other != site).collect(),
    }
}

/// Sites of the star and their links.
pub(super) fn access_links(scenario: &Scenario) -> Vec<(usize, usize)> {
    let joined = scenario.links.iter().enumerate().filter_map(|(index, link)| match link.ends {
        [End::Site(site), End::Core] | [End::Core, End::Site(site)] => Some((site, index)),
        _ => None,
    });
    joined.collect()
}

/// As a shell variable: `wan-1` becomes `WAN_1`.
pub(super) fn variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}
