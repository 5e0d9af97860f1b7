#[allow(non_snake_case)]
mod __steps_of_Checkout_at_0 {
    /// The steps of `Checkout`, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CheckoutStep {
        /// The step `charge`.
        Charge,
        /// The step `ship`.
        Ship,
        /// The step `thank`.
        Thank,
    }
    impl ::scoop::Step for CheckoutStep {
        const ALL: &'static [Self] = &[
            Self::Charge,
            Self::Charge,
            Self::Ship,
            Self::Ship,
            Self::Ship,
            Self::Thank,
        ];
        fn index(self) -> usize {
            match self {
                Self::Charge => 0,
                Self::Ship => 2,
                Self::Thank => 5,
            }
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
                ::scoop::__private::StepDefinition::new("charge (finally)")
                    .of_kind(::scoop::__private::StepKind::Finally),
                ::scoop::__private::StepDefinition::new(
                        "ship (waiting for scheduled time)",
                    )
                    .of_kind(::scoop::__private::StepKind::Wait),
                ::scoop::__private::StepDefinition::new("ship"),
                ::scoop::__private::StepDefinition::new("ship (finally)")
                    .of_kind(::scoop::__private::StepKind::Finally),
                ::scoop::__private::StepDefinition::new("thank").compensated(),
            ]
        },
    );
    fn timeout(
        step: __steps_of_Checkout_at_0::CheckoutStep,
    ) -> ::core::option::Option<::core::time::Duration> {
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                ::core::option::Option::Some(
                    ::core::time::Duration::from_millis(30000u64),
                )
            }
            _ => ::core::option::Option::None,
        }
    }
    fn retry(
        step: __steps_of_Checkout_at_0::CheckoutStep,
        what: ::scoop::__private::RetryTarget,
    ) -> ::core::option::Option<::scoop::__private::Retry> {
        match (step, what) {
            (
                __steps_of_Checkout_at_0::CheckoutStep::Ship,
                ::scoop::__private::RetryTarget::Step,
            ) => {
                ::core::option::Option::Some(
                    ::scoop::__private::Retry::new(5)
                        .backoff(
                            ::core::time::Duration::from_millis(100u64),
                            ::core::time::Duration::from_millis(30000u64),
                        )
                        .jitter_percent(50)
                        .when(Self::is_transient),
                )
            }
            (
                __steps_of_Checkout_at_0::CheckoutStep::Thank,
                ::scoop::__private::RetryTarget::Compensation,
            ) => {
                ::core::option::Option::Some(
                    ::scoop::__private::Retry::new(9).when(scoop::Error::is_permanent),
                )
            }
            _ => ::core::option::Option::None,
        }
    }
    fn sleep(
        step: __steps_of_Checkout_at_0::CheckoutStep,
    ) -> ::core::option::Option<::core::time::Duration> {
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                ::core::option::Option::Some(
                    ::core::time::Duration::from_millis(172800000u64),
                )
            }
            _ => ::core::option::Option::None,
        }
    }
    fn launches(
        step: __steps_of_Checkout_at_0::CheckoutStep,
    ) -> ::core::option::Option<&'static [&'static str]> {
        #[allow(unused_imports)]
        use ::scoop::__private::launched;
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                ::core::option::Option::Some(const { &[launched::<Parcel>()] })
            }
            _ => ::core::option::Option::None,
        }
    }
    fn stored_types() -> ::std::vec::Vec<::scoop::__private::StoredType> {
        use ::scoop::__private::{shape_of, stored};
        ::std::vec![
            shape_of(stored:: < Payment > (), "charge"), shape_of(stored:: < Thanks > (),
            "thank")
        ]
    }
    fn invoke<'a>(
        &'a self,
        step: __steps_of_Checkout_at_0::CheckoutStep,
        scope: &'a mut ::scoop::Scope<'_>,
        message: &'a OrderPlaced,
    ) -> ::scoop::__private::Boxed<'a, ::scoop::__private::StepEnd> {
        use ::scoop::__private::{boxed, jump_with, output, stored, unit};
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                output(stored::<Payment>(), self.charge(scope, message))
            }
            __steps_of_Checkout_at_0::CheckoutStep::Ship => {
                unit(self.ship(scope, message))
            }
            __steps_of_Checkout_at_0::CheckoutStep::Thank => {
                boxed(async move {
                    let any_from_thank = stored::<Thanks>().any_of(scope, "thank")?;
                    jump_with::<
                        Self,
                        _,
                    >(
                            stored::<Thanks>(),
                            self.thank(scope, message, any_from_thank.as_ref()),
                        )
                        .await
                })
            }
        }
    }
    fn due<'a>(
        &'a self,
        step: __steps_of_Checkout_at_0::CheckoutStep,
        scope: &'a mut ::scoop::Scope<'_>,
        message: &'a OrderPlaced,
    ) -> ::scoop::__private::Boxed<'a, ::std::time::SystemTime> {
        use ::scoop::__private::{always_due, boxed, stored};
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Ship => {
                boxed(async move {
                    let from_charge = stored::<Payment>().of(scope, "charge")?;
                    boxed(self.opening(scope, message, &from_charge)).await
                })
            }
            _ => always_due(),
        }
    }
    fn finally<'a>(
        &'a self,
        step: __steps_of_Checkout_at_0::CheckoutStep,
        scope: &'a mut ::scoop::Scope<'_>,
        message: &'a OrderPlaced,
    ) -> ::scoop::__private::Boxed<'a, ()> {
        use ::scoop::__private::{boxed, nothing, stored};
        match step {
            __steps_of_Checkout_at_0::CheckoutStep::Charge => {
                boxed(async move {
                    let any_from_charge = stored::<Payment>().any_of(scope, "charge")?;
                    boxed(self.close(scope, message, any_from_charge.as_ref())).await
                })
            }
            __steps_of_Checkout_at_0::CheckoutStep::Ship => {
                boxed(async move {
                    let any_from_charge = stored::<Payment>().any_of(scope, "charge")?;
                    boxed(self.close(scope, message, any_from_charge.as_ref())).await
                })
            }
            _ => nothing(),
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
            __steps_of_Checkout_at_0::CheckoutStep::Thank => {
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
