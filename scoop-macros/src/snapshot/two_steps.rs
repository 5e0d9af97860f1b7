#[allow(clippy::ptr_arg)]
impl Checkout {
    async fn charge(
        &self,
        scope: &mut Scope<'_>,
        order: &OrderPlaced,
    ) -> Result<Payment> {
        self.payments.charge(order, scope.idempotency_key()).await
    }
    async fn refund(
        &self,
        _: &mut Scope<'_>,
        _: &OrderPlaced,
        paid: &Payment,
        _: &Failure,
    ) -> Result<()> {
        self.payments.refund(paid).await
    }
    async fn ship(
        &self,
        scope: &mut Scope<'_>,
        _: &OrderPlaced,
        paid: &Payment,
    ) -> Result<()> {
        scope.launch(Ship(paid.id)).await
    }
}
const _: () = {
    #[allow(unused_imports)]
    use subscribes as _;
    #[allow(unused_imports)]
    use step as _;
};
#[allow(non_snake_case)]
mod __steps_of_Checkout_at_0 {
    /// The steps of `Checkout`, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CheckoutStep {
        /// The step `charge`.
        Charge,
        /// The step `ship`.
        Ship,
    }
    impl ::scoop::Step for CheckoutStep {
        const ALL: &'static [Self] = &[Self::Charge, Self::Ship];
        fn index(self) -> usize {
            self as usize
        }
    }
}
#[allow(unused_imports)]
pub use __steps_of_Checkout_at_0::CheckoutStep;
impl ::scoop::Saga for Checkout {
    type Message = OrderPlaced;
    type Step = __steps_of_Checkout_at_0::CheckoutStep;
    const DEFINITION: ::scoop::Definition = ::scoop::Definition::new(
        "checkout",
        ::scoop::__private::topic::<Self>(),
        const {
            &[
                ::scoop::__private::StepDefinition::new("charge").compensated(),
                ::scoop::__private::StepDefinition::new("ship").needing(&["charge"]),
            ]
        },
    );
    fn stored_types() -> ::std::vec::Vec<::scoop::__private::StoredType> {
        use ::scoop::__private::{shape_of, stored};
        ::std::vec![shape_of(stored:: < Payment > (), "charge")]
    }
    fn invoke<'a>(
        &'a self,
        step: __steps_of_Checkout_at_0::CheckoutStep,
        scope: &'a mut ::scoop::Scope<'_>,
        message: &'a OrderPlaced,
    ) -> ::scoop::__private::Boxed<'a, ::scoop::__private::StepEnd> {
        use ::scoop::__private::{boxed, output, stored, unit};
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                output(stored::<Payment>(), self.charge(scope, message))
            }
            __steps_of_Checkout_at_0::CheckoutStep::Ship => {
                boxed(async move {
                    let from_charge = stored::<Payment>().of(scope, "charge")?;
                    unit(self.ship(scope, message, &from_charge)).await
                })
            }
        }
    }
    fn compensate<'a>(
        &'a self,
        step: __steps_of_Checkout_at_0::CheckoutStep,
        scope: &'a mut ::scoop::Scope<'_>,
        message: &'a OrderPlaced,
        failure: &'a ::scoop::Failure,
    ) -> ::scoop::__private::Boxed<'a, ()> {
        use ::scoop::__private::{boxed, nothing, stored};
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                boxed(async move {
                    let from_charge = stored::<Payment>().of(scope, "charge")?;
                    boxed(self.refund(scope, message, &from_charge, failure)).await
                })
            }
            _ => nothing(),
        }
    }
}
::scoop::__private::inventory::submit! {
    ::scoop::__private::Registration::new:: < Checkout > (::core::env!("CARGO_PKG_NAME"),
    || { use ::scoop::__private::NotDefault as _;
    ::scoop::__private::erase(::scoop::__private::Probe:: < Checkout > ::new()
    .instance()) })
}
