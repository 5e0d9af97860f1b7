//! The payments service: has the provider charge a card, and gives the money back.

use scoop::prelude::*;

use crate::provider::{ChargeError, Provider};

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

/// What `charge` leaves behind for `refund`: stored with the record that the step is done.
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
    /// The provider knows nothing of our transactions. If this process dies between its answer
    /// and our commit, the step runs again: with the same key, so that nobody pays twice.
    #[step(rollback = refund)]
    async fn charge(&self, scope: &mut Scope<'_>, bill: &ChargePayment) -> Result<Payment> {
        let key = scope.idempotency_key();
        let id = match self.provider.charge(key, bill.order, bill.cents).await {
            Ok(id) => id,
            // Final: the step fails, and the order goes back.
            Err(ChargeError::Declined(declined)) => return Err(declined.into()),
            // Nobody knows whether the card was charged: the step runs again after a pause.
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

    /// Gets the very value that `charge` returned. A compensation that fails leaves a mess, so
    /// whatever may pass is tried again.
    async fn refund(
        &self,
        scope: &mut Scope<'_>,
        _bill: &ChargePayment,
        paid: &Payment,
        _why: &Failure,
    ) -> Result<()> {
        let key = scope.idempotency_key();
        let refunded = self.provider.refund(key, paid.id.clone()).await;
        refunded.map_err(Error::infrastructure)?;
        sqlx::query("UPDATE payments.payments SET refunded = true WHERE id = $1")
            .bind(&paid.id)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }
}
