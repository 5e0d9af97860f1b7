//! Large payloads: many statements of bounded size in one transaction, in place of one statement that has them all. So the
//! memory of the server is bounded, as is the time of each statement, and a step or a client may launch any number.

use std::collections::BTreeSet;

use sqlx::PgConnection;
use sqlx::types::Json;

use super::settlement::EmissionRow;
use super::{Launch, Launched, Settlement, Tables};
use crate::{patience, payload};

/// How many bytes of payloads one statement has, about; more only if a single message has more. The conditional launches
/// keep them in memory within the usual `work_mem`.
pub(super) const PAYLOADS_BYTES_MAX: usize = 1024 * 1024;

/// Whether the messages are launched by several statements.
pub(crate) fn is_bulky(messages: &[Launched]) -> bool {
    messages.len() > 1 && messages.iter().map(|message| message.bytes).sum::<usize>() > PAYLOADS_BYTES_MAX
}

/// The items in parts of bounded size, at least one in each.
pub(crate) fn parts<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut sum = 0;
    items.chunk_by(move |item, next| {
        sum += bytes(item);
        let fits = sum + bytes(next) <= PAYLOADS_BYTES_MAX;
        sum = if fits { sum } else { 0 };
        fits
    })
}

impl Tables {
    /// Launches messages by several statements in a transaction of their own.
    pub(super) async fn launch_in_parts(&self, messages: &[Launched]) -> sqlx::Result<Launch> {
        let mut tx = self.sessions.begin().await?;
        let (mut launched, mut handlers) = (0, BTreeSet::new());
        for part in parts(messages, |message| message.bytes) {
            let launch = self.launch(&mut *tx, part).await?;
            launched += launch.launched;
            handlers.extend(launch.handlers);
        }
        tx.commit().await.inspect_err(patience::note)?;
        Ok(Launch { launched, handlers: handlers.into_iter().collect(), claimed: vec![] })
    }

    /// Stores the messages of a settlement ahead of it, in its transaction. `claim` is what the transaction of a step is
    /// marked with. The answer is no if it is not, or if the settlement was applied before.
    pub(super) async fn store_messages(
        &self,
        connection: &mut PgConnection,
        settlement: &Settlement,
        claim: Option<&str>,
    ) -> sqlx::Result<bool> {
        for part in parts(&settlement.emissions, |row: &EmissionRow| payload::bytes(&row.payload.value)) {
            let each = || part.iter();
            let stored = sqlx::query(self.sql.message_store.clone())
                .bind(each().map(|row| row.id).collect::<Vec<_>>())
                .bind(each().map(|row| &*row.topic).collect::<Vec<_>>())
                .bind(each().map(|row| Json(&row.payload.value)).collect::<Vec<_>>())
                .bind(claim)
                .execute(&mut *connection)
                .await?;
            if stored.rows_affected() == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_large_as_they_may_be() {
        let lengths = |items: &[usize]| parts(items, |bytes| *bytes).map(<[_]>::len).collect::<Vec<_>>();
        let all = PAYLOADS_BYTES_MAX;
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&[all / 2, all / 2, 1, all - 1, all]), [2, 2, 1]);
        assert_eq!(lengths(&[2 * all, 1, 2 * all, 2 * all]), [1, 1, 1, 1]);
    }
}
