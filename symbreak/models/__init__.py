"""Values, policies and one-step predictors, built from networks of any family."""
