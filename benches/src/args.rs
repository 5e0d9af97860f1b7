//! The command line.

use std::path::PathBuf;

use crate::outcome::Outcome;

/// The text for `--help`.
pub(crate) const USAGE: &str = "\
usage: scoop-bench [options]               measure
       scoop-bench compare BEFORE AFTER    two result files: what moved beyond the noise
       scoop-bench charts RESULTS.. FOLDER charts of result files, as SVG
       scoop-bench versus OTHER [options]  processor time of B1, B2, B3 and B5, beside another build of this program
       scoop-bench guard                   what a saga costs the server, beside its bounds: the test of the hot path

  --quick            a look of about a minute: one short round, small numbers
  --only B1,B6       these measures only
  --rounds N         how often each is measured (3)
  --seconds S        about how long a round of a measure, and of pgbench, takes (5), a warm-up aside
  --json FILE        write the results there, too
  --pool N           connections of an engine, its own four included (20)
  --concurrency N    how many runs an engine works on at once (1000)
  --finished N       B8, B22, B27: finished runs in the history (1000000)
  --backlog N        B9, fairness: ready runs (200000, 100000)
  --sleeping N        B10, B18, B22: sleeping and waiting runs (1000000)
  --rate N           B26: runs offered in each second (800)
  --executions N      B20: executions of one run (1000000)
  --long             B13, too: 30 minutes, or
  --minutes N        as many as this; B26, too, for so many minutes each
  --builds           B16, too: builds from nothing
  --peers DIR        run each program in there beside it, see benches/README.md";

/// The command to run.
#[derive(Debug)]
pub(crate) enum Command {
    Measure(Settings),
    Compare {
        before: PathBuf,
        after: PathBuf,
    },
    Charts {
        results: Vec<PathBuf>,
        folder: PathBuf,
    },
    /// Whether the cost of a saga is within its bounds.
    Guard,
    /// Both at the same time, on one server.
    Versus {
        other: PathBuf,
        settings: Settings,
    },
    /// Hidden: a process with an engine, for the measures that need several.
    Work {
        kind: String,
        url: String,
        settings: Settings,
    },
    Help,
}

/// The settings of the measures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) only: Option<Vec<String>>,
    pub(crate) rounds: usize,
    pub(crate) seconds: u32,
    pub(crate) json: Option<PathBuf>,
    pub(crate) pool: u32,
    pub(crate) concurrency: usize,
    pub(crate) finished: i64,
    pub(crate) backlog: Option<i64>,
    pub(crate) sleeping: i64,
    /// Executions of the run of B20.
    pub(crate) executions: u64,
    /// The runs that B26 offers in each second.
    pub(crate) rate: u32,
    /// The duration of B13 and of each load of B26, which are left out without it.
    pub(crate) minutes: Option<u32>,
    pub(crate) builds: bool,
    pub(crate) peers: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            quick: false,
            only: None,
            rounds: 3,
            seconds: 5,
            json: None,
            // With the engine's own four this leaves as many for steps as the limit has clients.
            pool: 20,
            concurrency: 1000,
            finished: 1_000_000,
            backlog: None,
            sleeping: 1_000_000,
            executions: 1_000_000,
            rate: 800,
            minutes: None,
            builds: false,
            peers: None,
        }
    }
}

impl Settings {
    /// Small settings for a quick look. Other options of the command line override them.
    fn quick() -> Self {
        Self {
            quick: true,
            rounds: 1,
            seconds: 2,
            finished: 20_000,
            backlog: Some(20_000),
            sleeping: 20_000,
            executions: 2_000,
            ..Self::default()
        }
    }
}

/// Parses the words after the program's name.
pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Outcome<Command> {
    let words: Vec<String> = words.into_iter().collect();
    match words.first().map(String::as_str) {
        Some("compare") => match &words[1..] {
            [before, after] => Ok(Command::Compare { before: before.into(), after: after.into() }),
            _ => Err("compare takes two result files".into()),
        },
        Some("charts") => match &words[1..] {
            [results @ .., folder] if !results.is_empty() => Ok(Command::Charts {
                results: results.iter().map(PathBuf::from).collect(),
                folder: folder.into(),
            }),
            _ => Err("charts takes result files and a folder".into()),
        },
        Some("versus") => match &words[1..] {
            [other, options @ ..] if !other.starts_with("--") => {
                Ok(Command::Versus { other: other.into(), settings: settings(options)? })
            }
            _ => Err("versus takes another build of this program".into()),
        },
        Some("work") => match &words[1..] {
            [kind, url, options @ ..] => {
                Ok(Command::Work { kind: kind.clone(), url: url.clone(), settings: settings(options)? })
            }
            _ => Err("work takes a kind and a database".into()),
        },
        Some("guard") => Ok(Command::Guard),
        Some("help" | "--help" | "-h") => Ok(Command::Help),
        _ => Ok(Command::Measure(settings(&words)?)),
    }
}

fn settings(words: &[String]) -> Outcome<Settings> {
    let is_quick = words.iter().any(|word| word == "--quick");
    let mut settings = if is_quick { Settings::quick() } else { Settings::default() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => {}
            "--only" => settings.only = Some(value()?.split(',').map(str::to_uppercase).collect()),
            "--rounds" => settings.rounds = number(word, value()?)?,
            "--seconds" => settings.seconds = number(word, value()?)?,
            "--json" => settings.json = Some(value()?.into()),
            "--pool" => settings.pool = number(word, value()?)?,
            "--concurrency" => settings.concurrency = number(word, value()?)?,
            "--finished" => settings.finished = number(word, value()?)?,
            "--backlog" => settings.backlog = Some(number(word, value()?)?),
            "--sleeping" => settings.sleeping = number(word, value()?)?,
            "--executions" => settings.executions = number(word, value()?)?,
            "--rate" => settings.rate = number(word, value()?)?,
            "--long" => settings.minutes = settings.minutes.or(Some(30)),
            "--minutes" => settings.minutes = Some(number(word, value()?)?),
            "--builds" => settings.builds = true,
            "--peers" => settings.peers = Some(value()?.into()),
            unknown => return Err(format!("unknown option {unknown}\n{USAGE}").into()),
        }
    }
    Ok(settings)
}

/// A number above zero.
fn number<T: std::str::FromStr + Default + PartialOrd>(option: &str, text: &str) -> Outcome<T> {
    let number = text.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| format!("{option} wants a number above 0, not {text}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Settings> {
        match parse(line.split_whitespace().map(str::to_owned))? {
            Command::Measure(settings) => Ok(settings),
            other => Err(format!("{other:?}").into()),
        }
    }

    #[test]
    fn quick_look_is_small_except_for_given_options() {
        let quick = parsed("--rounds 2 --quick --only b1,B6").expect("it is well formed");
        assert_eq!((quick.rounds, quick.seconds), (2, 2));
        assert_eq!(quick.only, Some(vec!["B1".to_owned(), "B6".to_owned()]));
        assert!(quick.finished < Settings::default().finished);
        assert_eq!(parsed("").expect("nothing is asked for"), Settings::default());
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for (line, part) in [
            ("--round 3", "unknown option --round"),
            ("--rounds", "--rounds wants a value"),
            ("--rounds 0", "--rounds wants a number above 0, not 0"),
            ("compare one.json", "compare takes two"),
            ("versus --only B1", "versus takes another build"),
        ] {
            let error = parsed(line).expect_err(line).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn long_lasts_as_long_as_said() {
        assert_eq!(parsed("--long").expect("it is known").minutes, Some(30));
        assert_eq!(parsed("--minutes 2 --long").expect("it is known").minutes, Some(2));
    }
}
