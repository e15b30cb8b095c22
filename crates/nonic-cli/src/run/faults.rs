//! `nonic run --faults`: faults as the setting has them, or a longer play of them in a TOML file.
//!
//! A file has a table `[[fault]]` for each rule, with the parts of `NONIC_FAULTS` as keys, and perhaps a `seed`. It becomes the setting,
//! so that there is one meaning of everything.

use anyhow::{Context, Result, bail};
use nonic::FaultPlan;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A file of faults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Play {
    seed: Option<u64>,
    #[serde(default)]
    fault: Vec<BTreeMap<String, Part>>,
}

/// What a part is set to.
#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Number(u64),
    Text(String),
}

/// What `NONIC_FAULTS` is to be.
pub(super) fn setting(argument: &str) -> Result<String> {
    let path = Path::new(argument);
    let text = match path.extension().is_some_and(|extension| extension == "toml") {
        true => {
            let file = std::fs::read_to_string(path).with_context(|| format!("cannot read {argument}"))?;
            of_play(&file).with_context(|| format!("{argument} is no play of faults"))?
        }
        false => argument.to_owned(),
    };
    if let Err(error) = text.parse::<FaultPlan>() {
        bail!("cannot make faults of {text}: {error}");
    }
    Ok(text)
}

fn of_play(file: &str) -> Result<String> {
    let play: Play = toml::from_str(file)?;
    let rules = play.fault.iter().map(|parts| {
        let parts = parts.iter().map(|(name, value)| match value {
            Part::Number(number) => format!("{name}={number}"),
            Part::Text(text) => format!("{name}={text}"),
        });
        parts.collect::<Vec<_>>().join(",")
    });
    let seed = play.seed.map(|seed| format!("seed={seed}"));
    let rules: Vec<String> = rules.chain(seed).collect();
    Ok(rules.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_play_is_rules_one_after_the_other() {
        let file = r#"
            seed = 7
            [[fault]]
            loss = "1%"
            kind = "ack"
            [[fault]]
            loss = "100%"
            from = "2s"
            until = "3s"
            every = 2
        "#;
        let text = of_play(file).expect("well formed");
        assert_eq!(text, "kind=ack,loss=1%;every=2,from=2s,loss=100%,until=3s;seed=7");
        assert!(text.parse::<FaultPlan>().is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for file in ["fault = 1", "speed = 3", "[[fault]]\nloss = true"] {
            assert!(of_play(file).is_err(), "{file}");
        }
        let error = setting("loss=much").expect_err("no rate").to_string();
        assert!(error.contains("cannot make faults of loss=much"), "{error}");
        let error = setting("no/such/file.toml").expect_err("no file").to_string();
        assert!(error.contains("cannot read no/such/file.toml"), "{error}");
    }
}
