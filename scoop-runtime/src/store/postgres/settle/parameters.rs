//! The parameters that the statements of `sql/settle/` have in common.

use scoop_core::EventKind;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{Postgres, SqlStr};

use crate::store::Settlement;
use crate::store::settlement::{EventRow, ValueRow, count};
use crate::util::ids;

type Statement<'q> = Query<'q, Postgres, PgArguments>;

pub(super) struct SettlementRow<'a> {
    pub(super) all: &'a Settlement,
    /// The SUSPENDED of the step, if there was one.
    pub(super) suspended: Option<&'a EventRow>,
    /// The COMMITTED or ROLLED_BACK of the run, if it has ended.
    pub(super) last: Option<&'a EventRow>,
}

impl<'a> SettlementRow<'a> {
    fn step(&self) -> Option<&'a str> {
        self.suspended.or(self.last)?.step.as_deref()
    }

    fn next_step(&self) -> Option<i32> {
        self.suspended?.next_step
    }

    fn jump(&self) -> Option<&'a str> {
        self.suspended?.jump.as_deref()
    }

    fn handler_iteration(&self) -> Option<i32> {
        self.suspended?.handler_iteration
    }

    pub(super) fn returned(&self) -> Option<&'a ValueRow> {
        self.all.return_values.first()
    }

    fn message_count(&self) -> i32 {
        count(self.all.emissions.len() + self.all.rollback_requests.len())
    }
}

/// The statement for one run, as `settlement_one.sql` numbers its parameters. `claim` is the mark of the transaction of
/// the step, if the statement runs in there.
pub(super) fn bind_one<'q>(
    statement: &SqlStr,
    row: &SettlementRow<'q>,
    identifier: &'q str,
    claim: Option<&'q str>,
) -> Statement<'q> {
    let SettlementRow { all, suspended, last } = row;
    sqlx::query(statement.clone())
        .bind(all.root)
        .bind(all.id)
        .bind(all.epoch)
        .bind(row.step())
        .bind(row.next_step())
        .bind(all.iteration)
        .bind(row.handler_iteration())
        .bind(all.suspensions)
        .bind(all.outputs.as_ref().map(Json))
        .bind(all.replied)
        .bind(all.context.as_ref().map(Json))
        .bind(row.returned().map(|value| &*value.name))
        .bind(row.returned().map(|value| Json(&value.value)))
        .bind(suspended.map(|_| ids::now_v7()))
        .bind(row.jump())
        .bind(all.definition)
        .bind(all.completions.as_ref().map(Json))
        .bind(last.map(|event| event.kind))
        .bind(last.map(|_| ids::now_v7()))
        .bind(row.message_count())
        .bind(all.rollback_cause.as_ref().map(Json))
        .bind(claim)
        .bind(identifier)
}

/// The statement for several runs, outside the transactions of their steps, as `settlement_many.sql` numbers its
/// parameters.
pub(super) fn bind_many<'q>(
    statement: &SqlStr,
    rows: &[SettlementRow<'q>],
    identifier: &'q str,
) -> Statement<'q> {
    let each = || rows.iter();
    sqlx::query(statement.clone())
        .bind(each().map(|row| row.all.root).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.id).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.epoch).collect::<Vec<_>>())
        .bind(each().map(SettlementRow::step).collect::<Vec<_>>())
        .bind(each().map(SettlementRow::next_step).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.iteration).collect::<Vec<_>>())
        .bind(each().map(SettlementRow::handler_iteration).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.suspensions).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.outputs.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.replied).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.context.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|row| row.returned().map(|value| &*value.name)).collect::<Vec<_>>())
        .bind(each().map(|row| row.returned().map(|value| Json(&value.value))).collect::<Vec<_>>())
        .bind(each().map(|row| row.suspended.map(|_| ids::now_v7())).collect::<Vec<_>>())
        .bind(each().map(SettlementRow::jump).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.definition).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.completions.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(each().map(|row| row.last.map(|event| event.kind)).collect::<Vec<_>>())
        .bind(each().map(|row| row.last.map(|_| ids::now_v7())).collect::<Vec<_>>())
        .bind(each().map(SettlementRow::message_count).collect::<Vec<_>>())
        .bind(each().map(|row| row.all.rollback_cause.as_ref().map(Json)).collect::<Vec<_>>())
        .bind(None::<&str>)
        .bind(identifier)
}

/// Binds the first four parameters for each message of the runs: the position of its run, its position from the end, its
/// id, and that of its event. `kind` is the type of that event.
pub(super) fn bind_messages<'q>(
    statement: Statement<'q>,
    rows: &[SettlementRow<'_>],
    kind: EventKind,
) -> Statement<'q> {
    let events = || {
        (1_i64..).zip(rows).flat_map(|(nth, row)| {
            row.all.events.iter().filter(move |event| event.is(kind)).map(move |event| (nth, event))
        })
    };
    statement
        .bind(events().map(|(nth, _)| nth).collect::<Vec<_>>())
        .bind(events().map(|(_, event)| count(event.until_last)).collect::<Vec<_>>())
        .bind(events().map(|(_, event)| event.message_id).collect::<Vec<_>>())
        .bind(events().map(|_| ids::now_v7()).collect::<Vec<_>>())
}
