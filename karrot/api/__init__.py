"""The JSON API: `bodies` has the bodies of its answers, for the routes and for those who read them."""
