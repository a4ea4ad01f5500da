//! The named laboratories.
//!
//! Invariants: each is written in the form of a scenario file, so that whoever wants a variant starts from its text.
//! Delays are split evenly over the two directions. Sites of a pair are `a` and `b`.

use super::Scenario;

/// A laboratory that needs no file.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    pub name: &'static str,
    /// What it stands for, and where its figures come from.
    pub sentence: &'static str,
    /// A scenario file without a name.
    pub text: &'static str,
}

impl Scenario {
    /// None if there is no preset of this name.
    pub fn preset(name: &str) -> Option<Scenario> {
        let preset = PRESETS.iter().find(|preset| preset.name == name)?;
        let scenario = Scenario::from_toml(preset.text).ok()?;
        Some(Scenario { name: preset.name.into(), ..scenario })
    }
}

/// A pair of sites of one host each and one link of 10 Gbit/s with a queue of one bandwidth-delay product.
macro_rules! pair {
    ($rtt:literal) => {
        concat!(
            "[site.a]\n[site.b]\n[link.wan]\nbetween = [\"a\", \"b\"]\nrtt = \"",
            $rtt,
            "\"\nrate = \"10Gbit\"\nqueue = \"1bdp\"\n"
        )
    };
}

pub const PRESETS: &[Preset] = &[
    Preset {
        name: "direct",
        sentence: "Two hosts on one cable, with no delay, no limit and nothing emulated: what the machine itself can do.",
        text: "[site.a]\n[site.b]\n[link.wan]\nbetween = [\"a\", \"b\"]\n",
    },
    Preset {
        name: "lan",
        sentence: "One building: 0.2 ms round trip, 10 Gbit/s, queue of one bandwidth-delay product.",
        text: pair!("200us"),
    },
    Preset {
        name: "metro",
        sentence: "One city: 2 ms round trip, the near edge of the metropolitan class of the latency study (1 to 10 ms one \
                   way), 10 Gbit/s.",
        text: pair!("2ms"),
    },
    Preset {
        name: "interstate",
        sentence: "Neighbouring states: 20 ms round trip, where the metropolitan class of the latency study ends and the \
                   interstate class (10 to 50 ms one way) begins, 10 Gbit/s.",
        text: pair!("20ms"),
    },
    Preset {
        name: "continent",
        sentence: "Coast to coast over one continent: 74 ms round trip, 10 Gbit/s.",
        text: pair!("74ms"),
    },
    Preset {
        name: "transatlantic",
        sentence: "Across the Atlantic: 100 ms round trip, where the cross-continent class of the latency study (50 to \
                   100 ms one way) begins, 10 Gbit/s.",
        text: pair!("100ms"),
    },
    Preset {
        name: "intercontinental",
        sentence: "Half around the world: 200 ms round trip, the far end of the classes of the latency study, 10 Gbit/s.",
        text: pair!("200ms"),
    },
    Preset {
        name: "s2",
        sentence: "The path of the FDT, WDT and NDN comparison: a constant 75 ms, taken as the round trip, at a fixed \
                   rate without loss; 10 Gbit/s here, a tenth of the 100 Gbit/s of its hosts.",
        text: pair!("75ms"),
    },
    Preset {
        name: "lossy",
        sentence: "Coast to coast over a damaged path: 74 ms round trip, 1 Gbit/s, every ten-thousandth segment lost in \
                   each direction.",
        text: r#"[site.a]
[site.b]
[link.wan]
between = ["a", "b"]
rtt = "74ms"
rate = "1Gbit"
queue = "1bdp"
loss = "0.01%"
"#,
    },
    Preset {
        name: "satellite",
        sentence: "A ground station `a` behind a geostationary satellite: 600 ms round trip, 10 Mbit/s up, 50 Mbit/s \
                   down, a little jitter in order, and losses in short bursts.",
        text: r#"[site.a]
[site.b]
[link.wan]
between = ["a", "b"]
rtt = "600ms"
queue = "1bdp"
loss = "0.01%"
loss-burst = 3
jitter = "5ms"
forward = { rate = "10Mbit" }
backward = { rate = "50Mbit" }
"#,
    },
    Preset {
        name: "mobile",
        sentence: "A moving device `a` on a cellular network: 50 ms round trip with jitter, 20 Mbit/s up, 100 Mbit/s \
                   down, losses in bursts, 2 s out at every change of cell, a slow spell, and 30 s out from 90 s on.",
        text: r#"[site.a]
[site.b]
[link.wan]
between = ["a", "b"]
rtt = "50ms"
queue = "2bdp"
loss = "0.1%"
loss-burst = 8
jitter = "8ms"
forward = { rate = "20Mbit" }
backward = { rate = "100Mbit" }
timeline = [
    { at = "20s", every = "60s", for = "2s", down = true },
    { at = "35s", for = "15s", direction = "forward", rate = "4Mbit" },
    { at = "35s", for = "15s", direction = "backward", rate = "20Mbit" },
    { at = "90s", for = "30s", down = true },
]
"#,
    },
    Preset {
        name: "sc09",
        sentence: "The SC09 bandwidth challenge: LLNL, NERSC and ALCF with 5, 10 and 10 units into a show floor of 20; a \
                   unit is 0.1 Gbit/s here (1 Gbit/s there) so that two cores carry it, round trips to the show floor in \
                   Portland are from the distances (20, 20 and 56 ms), and the sites have 3, 2 and 20 hosts and the floor \
                   4, as there, each without a limit of its own.",
        text: r#"[site.floor]
hosts = 4
[site.llnl]
hosts = 3
[site.nersc]
hosts = 2
[site.alcf]
hosts = 20
[link.floor]
between = ["floor", "core"]
rtt = "1ms"
rate = "2Gbit"
queue = "1bdp"
[link.llnl]
between = ["llnl", "core"]
rtt = "19ms"
rate = "500Mbit"
queue = "1bdp"
[link.nersc]
between = ["nersc", "core"]
rtt = "19ms"
rate = "1Gbit"
queue = "1bdp"
[link.alcf]
between = ["alcf", "core"]
rtt = "55ms"
rate = "1Gbit"
queue = "1bdp"
"#,
    },
    Preset {
        name: "quad",
        sentence: "Four network cards at each end: four parallel links of 2.5 Gbit/s, 74 ms round trip, 10 Gbit/s \
                   together.",
        text: r#"[site.a]
[site.b]
[link.wan1]
between = ["a", "b"]
rtt = "74ms"
rate = "2.5Gbit"
queue = "1bdp"
[link.wan2]
between = ["a", "b"]
rtt = "74ms"
rate = "2.5Gbit"
queue = "1bdp"
[link.wan3]
between = ["a", "b"]
rtt = "74ms"
rate = "2.5Gbit"
queue = "1bdp"
[link.wan4]
between = ["a", "b"]
rtt = "74ms"
rate = "2.5Gbit"
queue = "1bdp"
"#,
    },
    Preset {
        name: "uneven",
        sentence: "Two network cards at each end, one of 100 and one of 25 Mbit/s, 20 ms round trip: what is shared out evenly \
                   waits for the slower one.",
        text: r#"[site.a]
[site.b]
[link.fast]
between = ["a", "b"]
rtt = "20ms"
rate = "100Mbit"
queue = "1bdp"
[link.slow]
between = ["a", "b"]
rtt = "20ms"
rate = "25Mbit"
queue = "1bdp"
"#,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_preset_can_be_built_in_four_gibibytes_and_needs_no_particular_back_end() {
        for preset in PRESETS {
            let scenario = Scenario::preset(preset.name).expect(preset.name);
            assert_eq!(scenario.name, preset.name);
            assert_eq!(scenario.check(4 << 30), Ok(()), "{}", preset.name);
            assert_eq!(scenario.needs().tun, None, "{}", preset.name);
            assert!(preset.sentence.ends_with('.'));
        }
        assert_eq!(Scenario::preset("unheard-of"), None);
    }

    #[test]
    fn the_figures_of_the_requirements_stand() {
        let round_trip_ms = |name| Scenario::preset(name).unwrap().round_trip_max().as_secs_f64() * 1e3;
        let asked = [("lan", 0.2), ("metro", 2.0), ("interstate", 20.0), ("continent", 74.0), ("transatlantic", 100.0)];
        for (name, ms) in asked.into_iter().chain([("intercontinental", 200.0), ("s2", 75.0), ("direct", 0.0)]) {
            assert_eq!(round_trip_ms(name), ms, "{name}");
        }
        let quad = Scenario::preset("quad").unwrap();
        assert_eq!(quad.links.len(), 4);
        assert!(quad.links.iter().all(|link| link.directions[0].bits_per_second == Some(2_500_000_000)));
        let sc09 = Scenario::preset("sc09").unwrap();
        let rates: Vec<_> = sc09.links.iter().map(|link| link.directions[0].bits_per_second.unwrap() / 1000).collect();
        assert_eq!(rates, [2_000_000, 500_000, 1_000_000, 1_000_000]);
        assert_eq!(sc09.round_trip_over(1), Duration::from_millis(74));
        assert_eq!(sc09.sites.iter().map(|site| site.hosts).collect::<Vec<_>>(), [4, 3, 2, 20]);
    }
}
