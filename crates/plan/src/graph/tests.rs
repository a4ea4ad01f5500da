//! What models may and may not say.

use super::*;

const EDGE: &str = r#"{"name":"e","from":"Src","to":"Dst","capacity":{"form":"const","value":1e9}}"#;

fn model(rest: &str) -> String {
    format!(r#"{{"v":1,{rest}}}"#)
}

fn refused(text: &str) -> String {
    Graph::parse(text).expect_err(text).to_string()
}

#[test]
fn what_a_model_may_not_say_is_refused_with_its_place() {
    let edges = |edges: &str| model(&format!(r#""edges":[{edges}]"#));
    let line = |name: &str, from: &str, to: &str| format!(r#"{{"name":"{name}","from":"{from}","to":"{to}"}}"#);
    let cases = [
        ("[".to_owned(), "EOF"),
        (r#"{"v":2,"edges":[]}"#.to_owned(), "version 2"),
        (model(r#""edges":[],"edge":[]"#), "unknown field `edge`"),
        (edges(&EDGE.replace("value", "valeu")), "valeu"),
        (edges(&EDGE.replace("\"capacity\"", "\"capcity\"")), "capcity"),
        (edges(&EDGE.replace("1e9", "\"10Gbit\"")), "expected f64"),
        (edges(&EDGE.replace("1e9", "0")), "value is 0"),
        (edges(&EDGE.replace("1e9", "-5")), "value is -5"),
        (edges(&EDGE.replace("1e9", "1e18")), "bytes a second"),
        (edges(&EDGE.replace("1e9", "10")), "at most 10 bytes a second"),
        (edges(&format!("{EDGE},{EDGE}")), "stands twice"),
        (edges(&EDGE.replace("Dst", "dst")), "no edge touches Dst"),
        (edges(&[line("a", "Src", "x"), line("b", "x", "x"), line("c", "x", "Dst")].join(",")), "loop"),
        (
            edges(&[line("a", "Src", "x"), line("b", "x", "y"), line("c", "y", "x"), line("d", "y", "Dst")].join(",")),
            "loop",
        ),
        (edges(&[line("a", "Dst", "x"), line("b", "x", "Src")].join(",")), "wrong way"),
        (edges(&format!("{EDGE},{}", line("b", "Src", "x"))), "nothing leads from its end \"x\""),
        (edges(&format!("{EDGE},{}", line("b", "x", "Dst"))), "to its beginning \"x\""),
        (model(&format!(r#""nodes":[{{"name":"typo"}}],"edges":[{EDGE}]"#)), "no edge begins or ends there"),
        (model(&format!(r#""nodes":[{{"name":"Src","gain":0}}],"edges":[{EDGE}]"#)), "gain is 0"),
        (model(&format!(r#""knobs":[{{"name":"n","min":3,"max":2}}],"edges":[{EDGE}]"#)), "range 3 to 2"),
        (model(&format!(r#""hosts":[{{"name":"h","cores":2,"reserve":2}}],"edges":[{EDGE}]"#)), "none is left"),
        (edges(&EDGE.replace("\"capacity\"", "\"host\":\"h\",\"capacity\"")), "no host \"h\""),
        (edges(&EDGE.replace("\"capacity\"", "\"cpu\":5,\"capacity\"")), "on no host"),
        (edges(&EDGE.replace("\"capacity\"", "\"count\":\"n\",\"capacity\"")), "no knob \"n\""),
        (edges(&EDGE.replace("\"capacity\"", "\"count\":0,\"capacity\"")), "count is 0"),
        (edges(&EDGE.replace("\"capacity\"", "\"count\":1.5,\"capacity\"")), "whole number or the name of a knob"),
        (edges(&EDGE.replace("\"capacity\"", "\"volume\":-1,\"capacity\"")), "its volume is -1"),
        (edges(&EDGE.replace("\"capacity\"", "\"volume\":\"3TB\",\"capacity\"")), "expected f64"),
        (
            edges(&[EDGE.replace("\"capacity\"", "\"volume\":3e12,\"capacity\""), line("b", "Src", "Dst")].join(",")),
            "edge \"b\": it has no volume",
        ),
        (
            edges(&[line("a", "Src", "x"), line("b", "x", "Dst").replace('}', ",\"volume\":1e12}")].join(",")),
            "edge \"b\": it has a volume and does not begin at Src",
        ),
    ];
    for (text, said) in cases {
        let why = refused(&text);
        assert!(why.contains(said), "{text}: {why}");
    }
}

/// Their answers would be a rate of 0, or one that leaves the processors out.
#[test]
fn numbers_that_nothing_can_be_calculated_with_are_refused() {
    let line = |name: &str, from: &str, to: &str| format!(r#"{{"name":"{name}","from":"{from}","to":"{to}"}}"#);
    let with = |parts: &str| model(&format!(r#"{parts},"edges":[{EDGE}]"#));
    let row = [line("a", "Src", "x"), line("b", "x", "y"), line("c", "y", "Dst")].join(",");
    let gains = r#""nodes":[{"name":"x","gain":1e-4},{"name":"y","gain":1e-4}]"#;
    let costly = EDGE.replace("\"capacity\"", "\"host\":\"h\",\"cpu\":1e300,\"capacity\"");
    let cases = [
        (with(r#""nodes":[{"name":"Src","gain":2}]"#), "nothing flows through it"),
        (model(&format!(r#"{gains},"edges":[{row}]"#)), "node \"y\": on a way from Src"),
        (with(r#""hosts":[{"name":"h","cores":1e300}]"#), "it has 1e300 cores"),
        (model(&format!(r#""edges":[{costly}]"#)), "cpu is 1e300"),
        (with(r#""knobs":[{"name":"n","min":1,"max":2,"weight":1e300}]"#), "weight is 1e300"),
    ];
    for (text, said) in cases {
        let why = refused(&text);
        assert!(why.contains(said), "{text}: {why}");
    }
}

#[test]
fn a_graph_of_ten_thousand_nodes_is_refused_before_it_is_built() {
    let mut edges = String::new();
    for at in 0..10_000 {
        let (from, to) = (if at == 0 { "Src".into() } else { format!("n{at}") }, format!("n{}", at + 1));
        edges.push_str(&format!(r#"{{"name":"e{at}","from":"{from}","to":"{to}"}},"#));
    }
    edges.push_str(r#"{"name":"last","from":"n10000","to":"Dst"}"#);
    assert!(refused(&model(&format!(r#""edges":[{edges}]"#))).contains("at most"));
}

#[test]
fn tables_of_more_points_than_can_be_tried_are_refused() {
    let points: Vec<String> = (1..=20_001).map(|n| format!(r#""{n}":1e9"#)).collect();
    let table = format!(r#"{{"form":"F5","knob":"n","points":{{{}}}}}"#, points.join(","));
    let edge = EDGE.replace(r#"{"form":"const","value":1e9}"#, &table);
    let text = model(&format!(r#""knobs":[{{"name":"n","min":1,"max":8}}],"edges":[{edge}]"#));
    assert!(refused(&text).contains("20001 points of F5; at most 20000"));
}

#[test]
fn a_change_of_an_edge_that_is_not_there_names_those_that_are() {
    let graph = Graph::parse(&model(&format!(r#""edges":[{EDGE}]"#))).unwrap();
    let wrong = graph.with_capacity("f", Change::Times(2.0)).unwrap_err().to_string();
    assert!(wrong.contains("no such edge; it has e"), "{wrong}");
    let many = (0..30).map(|at| EDGE.replace("\"e\"", &format!("\"e{at}\""))).collect::<Vec<_>>().join(",");
    let wrong = Graph::parse(&model(&format!(r#""edges":[{many}]"#))).unwrap().with_capacity("f", Change::To(1e9));
    assert!(wrong.unwrap_err().to_string().ends_with("e18, e19 and 10 more"));
}

#[test]
fn fixed_knobs_stay_in_their_range() {
    let text = model(&format!(r#""knobs":[{{"name":"n","min":1,"max":8}}],"edges":[{EDGE}]"#));
    let mut graph = Graph::parse(&text).unwrap();
    assert!(graph.fix("n", 9).unwrap_err().to_string().contains("outside its range 1 to 8"));
    assert!(graph.fix("m", 1).unwrap_err().to_string().contains("it has n"));
    graph.fix("n", 5).unwrap();
    assert_eq!((graph.knobs[0].min, graph.knobs[0].max), (5, 5));
}
