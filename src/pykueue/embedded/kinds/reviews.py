"""Reviews: questions to the server in the form of objects. They are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import Kind


class _Review(Kind):
    namespaced = False
    has_generation = False
    verbs = ("create",)


class TokenReview(_Review):
    """authentication.k8s.io/v1 TokenReview: whose token is this?"""

    group = "authentication.k8s.io"
    kind = "TokenReview"
    plural = "tokenreviews"


class SelfSubjectReview(_Review):
    """authentication.k8s.io/v1 SelfSubjectReview: the user of the request."""

    group = "authentication.k8s.io"
    kind = "SelfSubjectReview"
    plural = "selfsubjectreviews"


class SelfSubjectReviewBeta(SelfSubjectReview):
    """authentication.k8s.io/v1beta1 SelfSubjectReview, which kubectl up to 1.27 asks."""

    version = "v1beta1"


class SelfSubjectReviewAlpha(SelfSubjectReview):
    """authentication.k8s.io/v1alpha1 SelfSubjectReview."""

    version = "v1alpha1"


def to_version(version: str) -> Callable[[Object], Object]:
    """Between versions of a review that differ in nothing but their name."""

    def convert(obj: Object) -> Object:
        return {**obj, "apiVersion": f"{SelfSubjectReview.group}/{version}"}

    return convert


class SelfSubjectAccessReview(_Review):
    """authorization.k8s.io/v1 SelfSubjectAccessReview: may I?"""

    group = "authorization.k8s.io"
    kind = "SelfSubjectAccessReview"
    plural = "selfsubjectaccessreviews"


class SelfSubjectRulesReview(_Review):
    """authorization.k8s.io/v1 SelfSubjectRulesReview: what may I in this namespace?"""

    group = "authorization.k8s.io"
    kind = "SelfSubjectRulesReview"
    plural = "selfsubjectrulesreviews"


class SubjectAccessReview(_Review):
    """authorization.k8s.io/v1 SubjectAccessReview: may they?"""

    group = "authorization.k8s.io"
    kind = "SubjectAccessReview"
    plural = "subjectaccessreviews"


class LocalSubjectAccessReview(_Review):
    """authorization.k8s.io/v1 LocalSubjectAccessReview: may they, in this namespace?"""

    group = "authorization.k8s.io"
    kind = "LocalSubjectAccessReview"
    plural = "localsubjectaccessreviews"
    namespaced = True
