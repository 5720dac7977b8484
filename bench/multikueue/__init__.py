"""MultiKueue: what jobs cost that a manager cluster dispatches to worker clusters."""
