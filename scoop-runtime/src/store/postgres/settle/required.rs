//! Settlements of several statements in one transaction: the messages of large ones are stored first. Afterwards,
//! `step_unhandled.sql` checks messages that require a handler, and `found_by_record.sql` records by what messages are found.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::super::query_ext::FetchExt;
use crate::store::{PostgresStore, SettleResult, SettleStorage, Settlement};

impl PostgresStore {
    /// Applies settlements of which one launches large messages, or one that requires a handler or is found by fields, in a
    /// transaction.
    /// Fails with `Unhandled` if a handler is missing; then none of them is applied.
    pub(super) async fn settle_in_transaction(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        let mut tx = self.sessions.begin().await?;
        for bulky in settlements.iter().filter(|settlement| settlement.is_bulky()) {
            self.store_messages(&mut tx, bulky, None).await?;
        }
        let rows = self.settle_by_path(&mut tx, identifier, settlements, None).await?;
        let settled: BTreeMap<_, _> = rows.iter().map(SettleResult::from_row).collect::<sqlx::Result<_>>()?;
        if settlements.iter().any(|it| it.is_bulky() && !settled.contains_key(&it.id())) {
            // Messages were stored whose settlement is void.
            tx.rollback().await?;
            return self.settle_apart(identifier, settlements).await;
        }
        let applied = settlements.iter().filter(|settlement| settled.contains_key(&settlement.id()));
        self.record_found_by_of(&mut tx, applied.clone()).await?;
        for settlement in applied.filter(|settlement| settlement.requires_handlers()) {
            self.check_handlers(&mut tx, settlement).await?;
        }
        tx.commit().await?;
        Ok(settled)
    }

    /// Applies each of the settlements in a transaction of its own, but a single one, which was void, to nothing.
    async fn settle_apart(
        &self,
        identifier: &str,
        settlements: &[Settlement],
    ) -> sqlx::Result<BTreeMap<(Uuid, i64), SettleResult>> {
        let mut settled = BTreeMap::new();
        for one in settlements.chunks(1).filter(|_| settlements.len() > 1) {
            settled.extend(Box::pin(self.settle(identifier, one)).await?);
        }
        Ok(settled)
    }

    /// Fails with `Unhandled` if no run was created for a message that requires a handler, by a settlement
    /// that this transaction has applied.
    pub(in super::super) async fn check_handlers(
        &self,
        connection: &mut PgConnection,
        settlement: &Settlement,
    ) -> sqlx::Result<()> {
        let required = settlement.emissions.iter().filter(|row| row.required.is_some());
        let (own, detached): (Vec<_>, Vec<_>) = required.partition(|row| row.detached_root.is_none());
        let missing: Option<Uuid> = sqlx::query_scalar(self.sql.step_unhandled.clone())
            .bind(settlement.root)
            .bind(settlement.id)
            .bind(own.iter().map(|row| row.id).collect::<Vec<_>>())
            .bind(detached.iter().map(|row| row.id).collect::<Vec<_>>())
            .bind(detached.iter().filter_map(|row| row.detached_root).collect::<Vec<_>>())
            .persistent(self.sessions.supports_prepared())
            .first_on(connection)
            .await?;
        let mut missing = settlement.emissions.iter().filter(|row| Some(row.id) == missing);
        let unhandled = missing.next().and_then(|row| row.unhandled());
        unhandled.map_or(Ok(()), |unhandled| Err(unhandled.into()))
    }
}
