//! The payments service: has the provider charge a card, and refunds.

use scoop::prelude::*;

use crate::provider::{ChargeError, Provider, RefundError};

pub const TABLES: &str = "
    CREATE SCHEMA payments;
    CREATE TABLE payments.payments (
        id       text PRIMARY KEY,  -- as the provider knows it
        order_id int NOT NULL,
        cents    bigint NOT NULL,
        refunded boolean NOT NULL DEFAULT false
    );";

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "payments.charge")]
pub struct ChargePayment {
    pub order: i32,
    pub cents: i64,
}

/// The value that `charge` returns for `refund`. It is stored together with the completion of the step.
#[derive(Serialize, Deserialize)]
pub struct Payment {
    id: String,
}

/// One payment. Dependencies are plain fields; `main` provides the saga.
pub struct Payments {
    provider: Provider,
}

impl Payments {
    pub fn through(provider: Provider) -> Self {
        Self { provider }
    }
}

#[saga]
#[subscribes(ChargePayment)]
impl Payments {
    /// The provider does not take part in our transactions. If this process dies between its answer and our
    /// commit, the step runs again: with the same key, so that no customer pays twice.
    #[step(rollback = refund)]
    async fn charge(&self, scope: &mut Scope<'_>, bill: &ChargePayment) -> Result<Payment> {
        let key = scope.idempotency_key();
        let id = match self.provider.charge(key, bill.order, bill.cents).await {
            Ok(id) => id,
            // Final: the step fails, and the order is rolled back.
            Err(ChargeError::Declined(declined)) => return Err(declined.into()),
            // It is unknown whether the card was charged: the step runs again after a pause.
            Err(ChargeError::Unknown(lost)) => return Err(Error::infrastructure(lost)),
        };
        sqlx::query("INSERT INTO payments.payments (id, order_id, cents) VALUES ($1, $2, $3)")
            .bind(&id)
            .bind(bill.order)
            .bind(bill.cents)
            .execute(scope.tx().await?)
            .await?;
        Ok(Payment { id })
    }

    /// Gets exactly the value that `charge` returned. A failed compensation needs an operator, so all temporary
    /// errors are retried. Only a refusal of the provider is final: then the rollback waits for a decision.
    async fn refund(
        &self,
        scope: &mut Scope<'_>,
        _bill: &ChargePayment,
        paid: &Payment,
        _why: &Failure,
    ) -> Result<()> {
        let key = scope.idempotency_key();
        match self.provider.refund(key, paid.id.clone()).await {
            Ok(()) => {}
            Err(RefundError::Refused(refused)) => return Err(refused.into()),
            Err(RefundError::Unknown(lost)) => return Err(Error::infrastructure(lost)),
        }
        sqlx::query("UPDATE payments.payments SET refunded = true WHERE id = $1")
            .bind(&paid.id)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }
}
