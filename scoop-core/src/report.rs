//! The report of a failure for people: one tree across all services.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::failure::{
    CHILD_ROLLBACK_FAILED, CHILD_ROLLED_BACK, GAVE_UP, GAVE_UP_WORDS, LAUNCHED_FAILED, NO_MESSAGE,
    PARENT_SAID_SO, parent_rolls_back,
};
use crate::text::lines;
use crate::{Escaped, Failure};

/// The words before the step in messages of the protocol.
const CHILD_FAILED_IN: &str = "Child failure occurred while suspended in step";
const CHILD_ROLLBACK_FAILED_IN: &str = "Child rollback failure occurred while suspended in step";

/// The type of a failure that combines those of several handlers of one message.
const HANDLERS_FAILED: &str = "HandlersFailed";

/// The maximum number of listed places of one failure. The reference implementation records a hundred.
const FRAMES_MAX: usize = 16;

/// The tree of the failure, a line for each, indented by their depth.
pub(crate) fn of(failure: &Failure) -> String {
    let mut repeated = Repeated::default();
    repeated.count_repeats(failure);
    repeated.reported.retain(|reported| reported.times > 1);
    let mut report = Report { text: String::new(), repeated, numbers: 0 };
    report.write_failure(failure, 0);
    report.text
}

/// The first cause in a few words, and the number of other causes.
pub(crate) fn summary(failure: &Failure) -> String {
    let causes = failure.root_causes();
    let first = causes.first().map_or_else(|| brief(failure), |cause| brief(cause));
    let others = causes.iter().map(|cause| brief(cause)).filter(|cause| *cause != first);
    let unlisted: u64 = failure.tree().map(Failure::unlisted_count).sum();
    match others.collect::<BTreeSet<_>>().len() as u64 + unlisted {
        0 => first,
        1 => format!("{first} (and 1 other cause)"),
        others => format!("{first} (and {others} other causes)"),
    }
}

pub(crate) fn failed_compensation(failure: &Failure) -> &Failure {
    let passes_on =
        |failure: &Failure| [CHILD_ROLLBACK_FAILED, HANDLERS_FAILED].contains(&failure.simple_kind());
    let mut failed = failure;
    while let Some(below) = failed.reasons().next().filter(|_| passes_on(failed)) {
        failed = below;
    }
    failed
}

/// A summary of the report in a few words.
pub(crate) fn rollback_summary(failure: &Failure) -> String {
    let failed = failed_compensation(failure);
    let causes = failed.root_causes();
    let Some(cause) = causes.first().filter(|cause| **cause != failed) else {
        return brief(failed);
    };
    match failed.simple_kind() {
        CHILD_ROLLED_BACK => {
            let in_saga = saga_of(&cause.source).map_or_else(String::new, |saga| format!(" in `{saga}`"));
            format!("{}{}: {}", launched_by(failed), Escaped(&in_saga), summary(failed))
        }
        GAVE_UP => format!("{GAVE_UP_WORDS}: {}", brief(cause)),
        _ => brief(failed),
    }
}

/// What has failed, with the step and the saga that launched it.
fn launched_by(failure: &Failure) -> String {
    match (step_in(&failure.message, CHILD_FAILED_IN), saga_of(&failure.source)) {
        (Some(step), Some(saga)) => {
            Escaped(&format!("what step `{step}` of `{saga}` launched has failed")).to_string()
        }
        _ => brief(failure),
    }
}

/// The saga in the source of a failure; `None` if that is no run.
fn saga_of(source: &str) -> Option<&str> {
    source.strip_suffix(']')?.split_once('[').map(|(saga, _)| saga)
}

fn step_in<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    message.strip_prefix(words)?.strip_prefix(" [")?.strip_suffix(']')
}

/// The failure itself in a few words.
fn brief(failure: &Failure) -> String {
    let words = in_words(failure).unwrap_or_else(|| {
        let text = if failure.message == NO_MESSAGE { &failure.kind } else { &failure.message };
        text.clone()
    });
    Escaped(&words).to_string()
}

/// The failures that occur several times.
#[derive(Default)]
struct Repeated<'a> {
    reported: Vec<Reported<'a>>,
}

struct Reported<'a> {
    failure: &'a Failure,
    times: usize,
    number: Option<usize>,
}

impl<'a> Repeated<'a> {
    /// Counts the failures of a tree. The causes of a repeated failure are repeated with it, so they are not counted
    /// again.
    fn count_repeats(&mut self, failure: &'a Failure) {
        match self.find(failure) {
            Some(reported) => reported.times += 1,
            None => {
                self.reported.push(Reported { failure, times: 1, number: None });
                failure.reasons().for_each(|cause| self.count_repeats(cause));
            }
        }
    }

    fn find(&mut self, failure: &Failure) -> Option<&mut Reported<'a>> {
        self.reported.iter_mut().find(|reported| reported.failure == failure)
    }
}

struct Report<'a> {
    text: String,
    repeated: Repeated<'a>,
    numbers: usize,
}

impl Report<'_> {
    fn write_failure(&mut self, failure: &Failure, depth: usize) {
        let indent = "  ".repeat(depth);
        let label = if depth == 0 { "" } else { "caused by " };
        let mut number = String::new();
        if let Some(reported) = self.repeated.find(failure) {
            if let Some(number) = reported.number {
                self.line(format_args!("{indent}{label}({number}), as above"));
                return;
            }
            self.numbers += 1;
            reported.number = Some(self.numbers);
            number = format!(" ({})", self.numbers);
        }
        let said = said(failure, &format!("\n{indent}    | "));
        self.line(format_args!("{indent}{label}{said}{number}"));
        self.write_frames(failure, &indent);
        for cause in failure.reasons() {
            self.write_failure(cause, depth + 1);
        }
    }

    fn write_frames(&mut self, failure: &Failure, indent: &str) {
        for frame in failure.stack_trace.iter().take(FRAMES_MAX) {
            let names = [&frame.class_name, &frame.function_name].into_iter().flatten();
            let name = names.map(String::as_str).collect::<Vec<_>>().join(".");
            let name = if name.is_empty() { name } else { format!(" in {name}") };
            let (file, name) = (Escaped(&frame.file_name), Escaped(&name));
            self.line(format_args!("{indent}    at {file}:{}{name}", frame.line_number));
        }
        let more = failure.stack_trace.len().saturating_sub(FRAMES_MAX);
        if more > 0 {
            self.line(format_args!("{indent}    and {more} places more"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes every write.
        let _ = writeln!(self.text, "{line}");
    }
}

/// The service and the failure, with this between its lines. The protocol's own failures are worded for readers.
fn said(failure: &Failure, between: &str) -> String {
    let words =
        in_words(failure).unwrap_or_else(|| format!("{}: {}", Escaped(&failure.kind), failure.message));
    format!("[{}] {}", Escaped(&failure.source), lines(&words, between))
}

/// The message of a failure, without its source.
pub(crate) fn words(failure: &Failure) -> String {
    in_words(failure).unwrap_or_else(|| failure.message.clone())
}

/// The wording for readers; `None` for failures that are not the protocol's own or have more content.
fn in_words(failure: &Failure) -> Option<String> {
    let message = &*failure.message;
    if failure.replaced_count().is_some() {
        return Some(message.to_owned());
    }
    let says = |words: &str| message == NO_MESSAGE || message == words;
    let asked =
        |what: &str| if message == NO_MESSAGE { what.to_owned() } else { format!("{what}: {message}") };
    match failure.simple_kind() {
        CHILD_ROLLED_BACK => match step_in(message, CHILD_FAILED_IN) {
            Some(step) => Some(format!("what step `{step}` launched has failed")),
            None => says(LAUNCHED_FAILED).then(|| LAUNCHED_FAILED.into()),
        },
        CHILD_ROLLBACK_FAILED => {
            let step = step_in(message, CHILD_ROLLBACK_FAILED_IN)?;
            Some(format!("what step `{step}` launched could not be undone"))
        }
        // The parent's reason follows as the cause.
        PARENT_SAID_SO => {
            let words = parent_rolls_back(&failure.source);
            (message == NO_MESSAGE || message.starts_with(&words)).then_some(words)
        }
        // Its reasons follow as its causes.
        GAVE_UP => {
            (message == NO_MESSAGE || message.starts_with(GAVE_UP_WORDS)).then(|| GAVE_UP_WORDS.into())
        }
        "CancellationRequestedException" => Some(asked("cancellation was requested")),
        "RollbackRequestedException" => Some(asked("a rollback was requested")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::Frame;

    fn at(mut failure: Failure, frames: &[(&str, i64, Option<&str>)]) -> Failure {
        failure.stack_trace.extend(frames.iter().map(|(file, line, function)| Frame {
            file_name: (*file).into(),
            line_number: *line,
            class_name: None,
            function_name: function.map(str::to_owned),
        }));
        failure
    }

    fn check(failure: &Failure, expected: Expect) {
        expected.assert_eq(&failure.report());
        assert_eq!(failure.to_string().lines().count(), 1);
    }

    #[test]
    fn failure_of_three_services_is_one_tree() {
        let broken = Failure::new("std::io::Error", "connection refused", "stock[w1]");
        let out = Failure::new("stock.out", "7 chairs were wanted, 2 are left", "stock[w1]");
        let out = at(
            out.caused_by([broken]),
            &[("stock/src/shelf.rs", 42, None), ("stock/src/main.rs", 17, Some("take"))],
        );
        let orders = Failure::child_rolled_back(Some("reserve"), "orders[w2]", vec![out]);
        let checkout = Failure::child_rolled_back(Some("place order"), "checkout[w3]", vec![orders]);
        check(
            &checkout,
            expect![[r#"
            [checkout[w3]] what step `place order` launched has failed
              caused by [orders[w2]] what step `reserve` launched has failed
                caused by [stock[w1]] stock.out: 7 chairs were wanted, 2 are left
                    at stock/src/shelf.rs:42
                    at stock/src/main.rs:17 in take
                  caused by [stock[w1]] std::io::Error: connection refused
        "#]],
        );
    }

    #[test]
    fn shared_cause_is_reported_once() {
        let out = at(Failure::new("stock.out", "no chairs left", "stock[w1]"), &[("shelf.rs", 42, None)]);
        let orders = Failure::child_rolled_back(Some("reserve"), "orders[w2]", vec![out]);
        let refused = Failure::new("courier.Refused", "on its way already", "courier[w3]");
        let courier = refused.caused_by([Failure::parent_said_so("orders[w2]", orders.clone())]);
        let reported = Failure::child_rolled_back(None, "orders[w2]", vec![orders.clone()]);
        let orders = Failure::child_rollback_failed("reserve", "orders[w2]", vec![courier, orders, reported]);
        check(
            &orders,
            expect![[r#"
            [orders[w2]] what step `reserve` launched could not be undone
              caused by [courier[w3]] courier.Refused: on its way already
                caused by [orders[w2]] the parent saga `orders` rolls back
                  caused by [orders[w2]] what step `reserve` launched has failed (1)
                    caused by [stock[w1]] stock.out: no chairs left
                        at shelf.rs:42
              caused by (1), as above
              caused by [orders[w2]] what it launched has failed as well
                caused by (1), as above
        "#]],
        );
    }

    #[test]
    fn failures_of_the_reference_implementation() {
        let mut shown = Failure::new("com.shop.Stock$Out", "none left", "stock[jvm]");
        shown = at(shown, &[("Stock.kt", 1, None)]);
        shown.stack_trace[0].class_name = Some("com.shop.Stock".into());
        shown.stack_trace[0].function_name = Some("take".into());
        shown = at(shown, &[("<unknown filename>", -2, None); 20]);
        let package = |kind: &str| format!("io.github.gabrielshanahan.scoop.coroutine.{kind}");
        let asked =
            Failure::new(package("CancellationRequestedException"), "customer left", "the shop's till");
        let gave_up = Failure::new(package("GaveUpException"), "", "orders[jvm]").caused_by([asked]);
        let unlike_ours = Failure::new(package("ChildRolledBackException"), "says more", "orders[jvm]");
        check(
            &unlike_ours.caused_by([gave_up, shown]),
            expect![[r#"
                [orders[jvm]] io.github.gabrielshanahan.scoop.coroutine.ChildRolledBackException: says more
                  caused by [orders[jvm]] gave up
                    caused by [the shop's till] cancellation was requested: customer left
                  caused by [stock[jvm]] com.shop.Stock$Out: none left
                      at Stock.kt:1 in com.shop.Stock.take
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      at <unknown filename>:-2
                      and 5 places more
            "#]],
        );
    }

    #[test]
    fn requests_of_users_are_reported_in_plain_words() {
        let asked = |kind| Failure::new(kind, "customer left", "till").report();
        assert_eq!(
            asked("CancellationRequestedException"),
            "[till] cancellation was requested: customer left\n"
        );
        assert_eq!(asked("RollbackRequestedException"), "[till] a rollback was requested: customer left\n");
        assert_eq!(asked("RequestedException"), "[till] RequestedException: customer left\n");
    }

    #[test]
    fn a_message_cannot_pass_for_a_place_or_a_cause() {
        let failure =
            Failure::new("T", "x\n    at main.rs:1\u{1b}[2K\r  caused by [s] U: y", "s\n  caused by");
        expect![[r#"
            [s\n  caused by] T: x
                |     at main.rs:1\u{1b}[2K\r  caused by [s] U: y
        "#]]
        .assert_eq(&failure.report());
    }

    #[test]
    fn the_first_cause_stands_for_all_in_a_summary() {
        let out = |what: &str| Failure::new("stock.out", format!("no {what} left"), "stock[w]");
        let asked = Failure::new("CancellationRequestedException", "customer\nleft", "till");
        let above = |causes: Vec<Failure>| Failure::child_rolled_back(Some("reserve"), "orders[w]", causes);
        assert_eq!(above(vec![out("chairs"), out("chairs")]).summary(), "no chairs left");
        let both = above(vec![out("chairs"), out("beds")]);
        assert_eq!(both.summary(), "no chairs left (and 1 other cause)");
        let all = above(vec![out("chairs"), out("beds"), out("desks")]);
        assert_eq!(all.summary(), "no chairs left (and 2 other causes)");
        let gave_up = Failure::gave_up("orders[w]", vec![asked]);
        assert_eq!(gave_up.summary(), r"cancellation was requested: customer\nleft");
        assert_eq!(Failure::new("shop::Declined", "", "s").summary(), "shop::Declined");
    }

    #[test]
    fn the_failed_compensation_stands_for_all_in_a_summary_of_a_rollback() {
        let why =
            Failure::parent_said_so("orders[w]", Failure::new("stock.out", "no chairs left", "stock[w]"));
        let refund = Failure::new("bank.closed", "the bank is closed", "bank[w]").caused_by([why.clone()]);
        let orders = Failure::child_rollback_failed("pay", "orders[w]", vec![refund, why]);
        let all = Failure::new(HANDLERS_FAILED, "2 handlers failed", "scoop").caused_by([orders]);
        assert_eq!(all.rollback_summary(), "the bank is closed");
        assert_eq!(all.failed_compensation().kind, "bank.closed");
    }

    /// The reason of the rollback of two runs above a failed compensation: `orders` fails for this reason, and `shop` is above it.
    fn above_a_failed_compensation(reason: Failure) -> Failure {
        let bank = Failure::new("bank.closed", "the bank is closed", "bank[w]");
        let orders = Failure::child_rollback_failed("pay", "orders[w]", vec![bank, reason.clone()]);
        let rolled_back = |failures| Failure::child_rolled_back(None, "shop[w]", failures);
        let shop = Failure::child_rollback_failed(
            "order",
            "shop[w]",
            vec![orders.clone(), rolled_back(vec![reason])],
        );
        let failed = Failure::child_rollback_failed("order", "shop[w]", vec![orders, shop.clone()]);
        Failure::child_rollback_failed("sell", "mall[w]", vec![failed, rolled_back(vec![shop])])
    }

    #[test]
    fn the_reason_of_a_rollback_stands_before_failed_compensations_in_a_summary() {
        let declined = Failure::new("card.declined", "card declined", "cards[w]");
        let mall = above_a_failed_compensation(declined.clone());
        assert_eq!(mall.summary(), "card declined (and 1 other cause)");
        assert_eq!(mall.root_causes()[0], &declined);
        let requested = Failure::parent_said_so("mall[w]", mall.clone());
        assert_eq!(requested.message, "the parent saga `mall` rolls back: card declined (and 1 other cause)");
        assert_eq!(requested.summary(), "card declined (and 1 other cause)");
        assert_eq!(mall.rollback_summary(), "the bank is closed");
        let of_others = mall.causes.iter().map(|cause| match cause.simple_kind() {
            CHILD_ROLLED_BACK => Failure { message: NO_MESSAGE.into(), ..cause.clone() },
            _ => cause.clone(),
        });
        let of_others = Failure { causes: of_others.collect(), ..mall.clone() };
        assert_eq!(of_others.summary(), "card declined (and 1 other cause)", "without words");
    }

    #[test]
    fn a_rollback_that_gave_up_is_summarized_with_its_cause() {
        let late = Failure::new("scoop.late", "it is too late", "payments[w]");
        let gave_up = Failure::gave_up("payments[w]", vec![late]);
        assert_eq!(gave_up.rollback_summary(), "gave up: it is too late");
        let orders = Failure::child_rollback_failed("pay", "orders[w]", vec![gave_up]);
        assert_eq!(orders.rollback_summary(), "gave up: it is too late");
        assert_eq!(Failure::gave_up("payments[w]", vec![]).rollback_summary(), "gave up");
    }

    #[test]
    fn a_failed_message_of_a_compensation_is_summarized_with_its_place_and_its_cause() {
        let closed = Failure::new("desk.closed", "no desk is\nopen", "refunds[w]");
        let step = Some("Rollback of charge[0,]");
        let launched = Failure::child_rolled_back(step, "payments[w]", vec![closed.clone()]);
        let orders = Failure::child_rollback_failed("pay", "orders[w]", vec![launched.clone()]);
        let all = "what step `Rollback of charge[0,]` of `payments` launched has failed in `refunds`: no desk is\\nopen";
        assert_eq!(launched.rollback_summary(), all);
        assert_eq!(orders.rollback_summary(), all);
        assert!(orders.to_string().ends_with(all), "{orders}");

        let asked = Failure::new("CancellationRequestedException", "enough", "till");
        let gave_up = Failure::gave_up("refunds[w]", vec![asked]);
        let launched = Failure::child_rolled_back(step, "payments[w]", vec![gave_up, closed]);
        assert_eq!(
            launched.rollback_summary(),
            "what step `Rollback of charge[0,]` of `payments` launched has failed: cancellation was requested: enough \
             (and 1 other cause)"
        );
        let unlike_ours = Failure::new("ChildRolledBackException", "says more", "payments[jvm]");
        assert_eq!(unlike_ours.rollback_summary(), "says more");
        assert_eq!(
            unlike_ours.caused_by([Failure::new("T", "broken", "s")]).rollback_summary(),
            "says more: broken"
        );
    }

    #[test]
    fn messages_of_several_lines_keep_to_their_depth() {
        let inner = Failure::new("T", "first\nsecond", "s");
        let failure = Failure::new("U", "m", "s").caused_by([inner]);
        expect![[r#"
            [s] U: m
              caused by [s] T: first
                  | second
        "#]]
        .assert_eq(&failure.report());
    }
}
