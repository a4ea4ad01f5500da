//! What becomes of addresses that an endpoint tells: made hosts with several cards, and liars.

use super::*;

fn own(card: u32, ip: &str) -> LocalAddress {
    LocalAddress { ip: ip.parse().unwrap(), card, interface: card, name: format!("eth{card}"), prefix_bits: 24 }
}

fn told(ip: &str, card: u32) -> AddressRecord {
    AddressRecord { ip: bytes_of(ip.parse().unwrap()), card, answers_by: Vec::new() }
}

/// Each net 10.0.N.0/24 is on card N; everything else leaves by card 1.
fn by_net(_: IpAddr, to: IpAddr) -> Option<Route> {
    let IpAddr::V4(to) = to else { return None };
    let [10, 0, net, _] = to.octets() else { return Some(Route { interface: 1, is_direct: false }) };
    Some(Route { interface: net.into(), is_direct: true })
}

fn search<'a>(told: &'a Addresses, cards: u32) -> Search<'a> {
    let own = (1..=cards).map(|card| own(card, &format!("10.0.{card}.1"))).collect();
    let ends = ("10.0.1.1:50000".parse().unwrap(), "10.0.1.2:7740".parse().unwrap());
    Search { ends, own, told, is_sender: true, lookup: &by_net }
}

fn remotes(found: &Found) -> Vec<&str> {
    found.paths.iter().map(|path| &path.remote[..]).collect()
}

#[test]
fn cards_in_nets_of_their_own_are_paths_of_their_own() {
    let told = Addresses { addresses: (1..=4).map(|card| told(&format!("10.0.{card}.2"), 10 + card)).collect() };
    let found = search(&told, 4).find(&PathWish::All);
    assert_eq!(remotes(&found), ["10.0.2.2:7740", "10.0.3.2:7740", "10.0.4.2:7740"]);
    assert_eq!(found.paths[0].local, Some("10.0.2.1".parse().unwrap()));
    assert_eq!(found.left_out, [""; 0]);
    assert_eq!(search(&told, 4).find(&PathWish::Most(2)).paths.len(), 1);
    let too_many = search(&told, 4).find(&PathWish::Most(9));
    assert_eq!(too_many.paths.len(), 3);
    assert!(too_many.left_out.last().unwrap().contains("9 paths were asked for, and there are 4"));
}

#[test]
fn addresses_that_mean_something_else_here_are_left_out_and_named() {
    let hostile = [
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "169.254.1.1",
        "::1",
        "fe80::1",
        "::ffff:10.0.0.9",
        "10.0.2.1",
    ];
    let told = Addresses { addresses: hostile.map(|ip| told(ip, 7)).to_vec() };
    let found = search(&told, 2).find(&PathWish::All);
    assert_eq!(found.paths, []);
    for ip in hostile {
        assert!(found.left_out.iter().any(|why| why.contains(&format!("address {ip} is left out"))), "{ip}: {found:?}");
    }
    let broken = AddressRecord { ip: vec![1, 2, 3], card: 1, answers_by: vec![] };
    let found = search(&Addresses { addresses: vec![broken] }, 2).find(&PathWish::All);
    assert!(found.paths.is_empty() && found.left_out[0].contains("is none"), "{found:?}");
}

#[test]
fn without_a_routing_rule_a_second_card_is_no_path_and_the_reason_is_said() {
    // One net for all cards: everything leaves by the first.
    let told = Addresses { addresses: vec![told("192.0.2.7", 11), told("192.0.2.8", 12)] };
    let mut search = search(&told, 2);
    search.ends.1 = "192.0.2.7:7740".parse().unwrap();
    let found = search.find(&PathWish::All);
    // The second card there is one that the first here may use as well.
    assert_eq!(remotes(&found), ["192.0.2.8:7740"]);
    assert_eq!(found.paths[0].local, Some("10.0.1.1".parse().unwrap()));
    let found = search.find(&PathWish::Auto);
    assert_eq!(found.paths, []);
    assert!(found.left_out.iter().any(|why| why.contains("10.0.2.1 (eth2)") && why.contains("doctor")), "{found:?}");
}

#[test]
fn what_is_fetched_needs_answers_that_leave_by_another_card() {
    let answering_by = |card| AddressRecord { answers_by: vec![11, card], ..told("10.0.2.2", 12) };
    for (card, paths) in [(12, 1), (11, 0)] {
        let told = Addresses { addresses: vec![told("10.0.1.2", 11), answering_by(card)] };
        let mut fetching = search(&told, 2);
        fetching.is_sender = false;
        assert_eq!(fetching.find(&PathWish::Auto).paths.len(), paths, "answers leave by card {card}");
    }
}

#[test]
fn the_endpoint_tells_its_own_addresses_and_survives_garbage() {
    let asked = AskAddresses { from: vec![vec![127, 0, 0, 1], vec![1], vec![0; 16], vec![255; 4]] };
    let addresses = crate::session::addresses::told(vec![own(3, "127.0.0.1")], &asked);
    assert_eq!(addresses.addresses.len(), 1);
    assert_eq!(addresses.addresses[0].answers_by, [0; 4]);
}
