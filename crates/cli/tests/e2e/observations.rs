//! What Prometheus reads of a hub, and the hub's dashboard.

use crate::hubs::House;
use crate::scrapes::{check_by_promtool, page_at};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn a_hub_tells_prometheus_of_its_queue_and_its_requests() {
    let house = House::new();
    house.bed.write("root-sitea/x/one", b"1234567");
    let done = house.submitted("source = \"sitea:x/\"\ndestination = \"siteb:y/\"\n");
    house.bed.run(&["job", "watch", &done]).succeeded();
    house.bed.write("root-sitea/slow/one", &[7; 1 << 20]);
    let first = house.submitted("source = \"sitea:slow/\"\ndestination = \"siteb:z/\"\nrate = \"4KiB\"\n");
    let after = format!("source = \"sitea:x/\"\ndestination = \"siteb:w/\"\nclass = \"low\"\nafter = [\"{first}\"]\n");
    house.submit(&after).succeeded();
    house.bed.write("job.toml", b"nonsense");
    assert_eq!(house.bed.run(&["submit", "job.toml"]).code, Some(2));
    // A count may be a second old.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let page = page_at(&house.bed.path("metrics"));
    for row in [
        "thalweg_hub_jobs_ended_total{status=\"succeeded\"} 1",
        "thalweg_hub_files_total{status=\"succeeded\"} 1",
        "thalweg_hub_transfer_bytes_total{status=\"succeeded\"} 7",
        "thalweg_hub_jobs{status=\"waiting\",class=\"low\"} 1",
        "thalweg_hub_jobs{status=\"running\",class=\"normal\"} 1",
        "thalweg_hub_waiting_jobs{reason=\"dependency\"} 1",
        "thalweg_hub_queue_oldest_seconds{class=\"high\"} 0",
        "thalweg_hub_endpoint_up{endpoint=\"sitea\"} 1",
        "thalweg_hub_request_seconds_count{method=\"POST\",path=\"/api/v1/jobs\",code=\"201\"} 3",
    ] {
        assert!(page.lines().any(|line| line == row), "{row} is not in\n{page}");
    }
    assert!(!page.contains(&done), "{page}");
    check_by_promtool(&page);
    let dashboard = include_str!("../../../../packaging/grafana/thalweg-hub.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut asked = BTreeSet::new();
    for target in dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        let expression = target["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("thalweg_")) {
            let family = name.trim_end_matches("_bucket").trim_end_matches("_count");
            assert!(page.contains(&format!("# TYPE {family} ")), "{expression}: there is no {family}");
            asked.insert(family.to_owned());
        }
        let labels = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        for label in labels.flat_map(|labels| labels.split(',')).map(str::trim) {
            assert!(page.contains(&format!("{label}=\"")), "{expression}: nothing has {label}");
        }
    }
    assert_eq!(asked.len(), 9, "{asked:?}");
}
