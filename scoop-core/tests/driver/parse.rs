//! The language of scripts:
//!
//! ```text
//! saga <name> on <topic> [once <n> rows | once stuck]
//!   step <name> [was <name>] [compensated]: <outcome>, <outcome>, ...
//!     undo: <outcome>, ...
//!     on child failure: <outcome>, ...
//!     finally: <outcome>, ...
//! launch <topic> [with <key>=<number> ...]
//! give up <saga> once <n> rows: "<reason>"
//! ```
//!
//! An outcome is `nothing`, or joins with `and`: `set <key>=<number>` (before anything is emitted), `emit <topic>`,
//! `emit detached <topic>`, `return <json>`, and at most one of `continue`, `repeat`, `goto <index>`, `as_new`, `fail "<text>"`,
//! `rethrow`, `ignore`. The n-th call of the code has the n-th outcome, any further call the last one. A name with
//! blanks stands in double quotes. A line that begins with `#` is a comment.

use scoop_core::Next;

use super::script::{Element, Emit, End, Launch, Outcome, Request, Saga, Script, Since, Step};

/// The script of this text.
pub(crate) fn parse(text: &str) -> Result<Script, String> {
    let mut script = Script { sagas: vec![], launches: vec![], requests: vec![] };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        statement(&mut script, line).map_err(|why| format!("line {}: {why}: {line}", number + 1))?;
    }
    for saga in &script.sagas {
        if let Err(errors) = saga.definition().check() {
            return Err(format!("{errors:?}"));
        }
    }
    Ok(script)
}

fn statement(script: &mut Script, line: &str) -> Result<(), String> {
    let mut words = words(line)?.into_iter().peekable();
    let first = words.next().unwrap_or_default();
    match first.as_str() {
        "launch" => {
            let topic = name(&mut words)?;
            let mut context = vec![];
            if words.next_if_eq("with").is_some() {
                while words.peek().is_some() {
                    context.push(element(&mut words)?);
                }
            }
            script.launches.push(Launch { topic, context });
        }
        "give" => {
            expect(&mut words, "up")?;
            let handler = name(&mut words)?;
            expect(&mut words, "once")?;
            let rows = number(&mut words)?;
            for word in ["rows", ":"] {
                expect(&mut words, word)?;
            }
            script.requests.push(Request { handler, rows, reason: name(&mut words)? });
        }
        "saga" => {
            let saga = name(&mut words)?;
            expect(&mut words, "on")?;
            let topic = name(&mut words)?;
            let since = since(&mut words)?;
            script.sagas.push(Saga { name: saga, topic, since, steps: vec![] });
        }
        "step" => {
            let step = name(&mut words)?;
            let was = match words.next_if_eq("was") {
                Some(_) => Some(&*name(&mut words)?.leak()),
                None => None,
            };
            let mut undo = None;
            if words.next_if_eq("[compensated]").is_some() {
                undo = Some(vec![Outcome::default()]);
            }
            let invoke = match words.next_if_eq(":") {
                Some(_) => outcomes(&mut words)?,
                None => vec![Outcome::default()],
            };
            let saga = script.sagas.last_mut().ok_or("a step without a saga")?;
            saga.steps.push(Step { name: step, was, invoke, undo, on_child_failure: None, finally: None });
        }
        "undo" => {
            expect(&mut words, ":")?;
            newest_step(script)?.undo = Some(outcomes(&mut words)?);
        }
        "on" => {
            for word in ["child", "failure", ":"] {
                expect(&mut words, word)?;
            }
            newest_step(script)?.on_child_failure = Some(outcomes(&mut words)?);
        }
        "finally" => {
            expect(&mut words, ":")?;
            newest_step(script)?.finally = Some(outcomes(&mut words)?);
        }
        _ => return Err("a line begins with saga, step, undo, on, finally, launch or give up".into()),
    }
    words.next().map_or(Ok(()), |word| Err(format!("`{word}` is not understood")))
}

type Words = std::iter::Peekable<std::vec::IntoIter<String>>;

/// The words of a line; `:` and `,` at the end of a word are separate words. A quoted text is one word, and keeps `"`
/// at its beginning, which distinguishes texts from names.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = vec![];
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let after = if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = quoted.split_once('"').ok_or("a quote is not closed")?;
            words.push(format!("\"{text}"));
            after
        } else if let Some(after) = rest.strip_prefix([':', ',']) {
            words.push(rest[..1].to_owned());
            after
        } else {
            let (word, _) = rest.split_once(' ').unwrap_or((rest, ""));
            let word = word.trim_end_matches([':', ',']);
            words.push(word.to_owned());
            &rest[word.len()..]
        };
        rest = after.trim_start();
    }
    Ok(words)
}

fn name(words: &mut Words) -> Result<String, String> {
    let word = words.next().ok_or("a name is missing")?;
    Ok(word.strip_prefix('"').map_or(word.clone(), str::to_owned))
}

fn expect(words: &mut Words, wanted: &str) -> Result<(), String> {
    words.next_if_eq(wanted).map(|_| ()).ok_or_else(|| format!("`{wanted}` is missing"))
}

fn number(words: &mut Words) -> Result<usize, String> {
    let word = words.next().ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("`{word}` is not a number"))
}

fn element(words: &mut Words) -> Result<Element, String> {
    let word = words.next().ok_or("an element is missing")?;
    let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no element"))?;
    let value = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
    Ok((key.to_owned(), value))
}

fn since(words: &mut Words) -> Result<Since, String> {
    if words.next_if_eq("once").is_none() {
        return Ok(Since::Start);
    }
    if words.next_if_eq("stuck").is_some() {
        return Ok(Since::Stuck);
    }
    let rows = number(words)?;
    expect(words, "rows")?;
    Ok(Since::Rows(rows))
}

fn newest_step(script: &mut Script) -> Result<&mut Step, String> {
    let saga = script.sagas.last_mut().ok_or("no saga to belong to")?;
    Ok(saga.steps.last_mut().ok_or("no step to belong to")?)
}

fn outcomes(words: &mut Words) -> Result<Vec<Outcome>, String> {
    let mut outcomes = vec![outcome(words)?];
    while words.next_if_eq(",").is_some() {
        outcomes.push(outcome(words)?);
    }
    Ok(outcomes)
}

fn outcome(words: &mut Words) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    loop {
        let word = words.next().ok_or("an outcome is missing")?;
        match word.as_str() {
            "nothing" | "ignore" => {}
            "continue" => outcome.end = End::Next(Next::Continue),
            "repeat" => outcome.end = End::Next(Next::Repeat),
            "anew" => outcome.end = End::ContinueAsNew,
            "goto" => outcome.end = End::Next(Next::GoTo(number(words)?)),
            "rethrow" => outcome.end = End::Rethrow,
            "fail" => outcome.end = End::Fail(name(words)?),
            "set" => outcome.sets.push(element(words)?),
            "return" => {
                let value = name(words)?;
                let value = serde_json::from_str(&value).map_err(|error| error.to_string())?;
                outcome.returns = Some(value);
            }
            "emit" => {
                let detached = words.next_if_eq("detached").is_some();
                let topic = name(words)?;
                outcome.emits.push(Emit { topic, detached });
            }
            _ => return Err(format!("`{word}` is not an outcome")),
        }
        if words.next_if_eq("and").is_none() {
            return Ok(outcome);
        }
    }
}
