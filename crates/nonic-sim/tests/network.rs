//! Networks at size: what is published of other laws holds here, a run is always the same, and a report has all that was run. The rest of
//! the scenarios takes longer: `nonic sim --network --quick`.

use nonic_sim::network::{Outcome, report, scenarios};

fn run(name: &str) -> Outcome {
    let found = scenarios().iter().find(|scenario| scenario.name == name);
    found.expect("such a scenario").run(true)
}

fn assert_holds(name: &str) {
    let outcome = run(name);
    let failed: Vec<String> = outcome
        .checks
        .iter()
        .filter(|check| !check.holds())
        .map(ToString::to_string)
        .collect();
    assert!(failed.is_empty(), "{name}: {}", failed.join("; "));
}

#[test]
fn timely_is_as_unfair_as_published_and_patched_it_is_fair() {
    assert_holds("oracle-timely");
}

#[test]
fn devices_do_what_the_model_of_them_does() {
    assert_holds("devices");
}

#[test]
fn a_run_is_the_same_every_time() {
    let [first, second] = [(), ()].map(|()| run("devices"));
    assert_eq!(first.runs, second.runs);
    assert_eq!(first.checks, second.checks);
}

#[test]
fn a_report_has_a_section_and_a_plot_of_each_scenario() {
    let outcomes = [run("devices"), run("oracle-timely")];
    let files = report(&outcomes);
    assert_eq!(files.len(), 3);
    for (outcome, plot) in outcomes.iter().zip(&files[1..]) {
        assert!(
            files[0]
                .text
                .contains(&format!("## {}\n", outcome.scenario.title))
        );
        assert!(files[0].text.contains(&format!("({})", plot.path)));
        assert!(plot.text.starts_with("<svg") && plot.text.ends_with("</svg>\n"));
        assert!(plot.text.contains("prefers-color-scheme: dark"));
        assert!(outcome.runs.iter().all(|run| plot.text.contains(&run.law)));
    }
}

#[test]
fn names_are_unique() {
    let names: std::collections::BTreeSet<&str> = scenarios().iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), scenarios().len());
}
